"""`python -m vitrail` is `vitrail`, for where the scripts of an installation are not on the path."""

from vitrail.cli import main

main()
