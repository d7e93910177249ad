"""The audit's score: where does a class stand out at one site, and how surely."""
