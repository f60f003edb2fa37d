"""Runs: gangs from their start to their end, and the files that they leave."""
