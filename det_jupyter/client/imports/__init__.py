"""Runs of other libraries, read from files and servers."""
