"""Starts agents."""
