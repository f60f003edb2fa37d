"""Takes a trial or a function out of a notebook, with all that it needs elsewhere."""
