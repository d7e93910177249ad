"""Membership inference: was this image among those a model was trained on?"""
