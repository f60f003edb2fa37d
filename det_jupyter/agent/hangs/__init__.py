"""Finds gangs that make no progress, and what holds them: see stall_watch.py."""
