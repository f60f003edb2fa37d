"""Starts the processes of ranks: forked by fork servers, or as new interpreters."""
