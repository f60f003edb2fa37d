"""Checkpoints of a trial: what is in them, writing and reading them."""
