"""Finds gangs that make no progress, and where their ranks wait: see stall_watch.py."""
