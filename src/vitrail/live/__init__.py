"""The live application: ask a model, watch runs, decide, in a browser at the site."""
