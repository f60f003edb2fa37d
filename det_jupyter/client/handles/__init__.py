"""Handles on experiments, trials, ranks and checkpoints, and what they print."""
