"""A site's end of a real federation."""
