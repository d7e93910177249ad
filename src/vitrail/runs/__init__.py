"""Using a run that was made: open, predict, evaluate, export, personalize, read its ledgers."""
