"""Verbs of `det` as tools of assistants: by `det mcp` over stdio, or in Jupyter Server."""
