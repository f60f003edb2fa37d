"""Runs an experiment's code again to find bottlenecks, or to check that pauses change nothing."""
