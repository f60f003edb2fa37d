"""Imports experiments, checkpoints and models of Determined."""
