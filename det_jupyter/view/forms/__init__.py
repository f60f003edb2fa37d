"""A view as HTML, as SVG and as plain text. Pure."""
