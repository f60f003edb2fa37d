"""Checkpoints of a trial: their content, writing and reading them."""
