"""Runs: gangs from start to end, and the files that their ranks write."""
