"""From the text of a cell to a submitted experiment, its preview, or a try in place."""
