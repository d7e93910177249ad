"""Where images come from: one file a format or layout."""
