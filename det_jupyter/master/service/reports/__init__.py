"""Converts reports of agents to rows and events."""
