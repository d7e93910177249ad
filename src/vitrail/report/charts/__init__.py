"""Charts of the report: shapes that become inline SVG, an SVG file or a PNG."""
