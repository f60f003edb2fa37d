"""Completion of lines of our magics, and of the YAML below them."""
