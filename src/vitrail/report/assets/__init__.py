"""The stylesheet and scripts of a report."""
