"""Captures a trial or a function of a notebook, with all that it needs in other processes."""
