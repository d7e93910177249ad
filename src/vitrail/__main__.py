"""`python -m vitrail` is `vitrail`, for where an installation's scripts are not on the path."""

from vitrail.cli import main

main()
