"""Starts the processes of ranks: by fork servers, or as fresh interpreters."""
