"""Code and grids behind the results tables of the docs; not part of the package."""
