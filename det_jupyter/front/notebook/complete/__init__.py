"""Completion of our magics' lines and of the YAML below them."""
