"""Computers as network namespaces, whose links and programs fail: `python -m tests.machines`."""
