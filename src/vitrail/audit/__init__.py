"""The audit: which site taught the model something it should not know, in which class and where."""
