"""Runs of the same code that find bottlenecks, and check that a pause changes nothing."""
