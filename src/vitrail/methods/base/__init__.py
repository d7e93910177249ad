"""What a method is: the seam, its stages, and what several methods have in common."""
