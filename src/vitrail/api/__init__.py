"""What a notebook works with: a run and its results, in the words of the command line."""
