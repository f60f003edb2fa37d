"""Random kills and freezes of all processes while experiments run: `python -m tests.soak`."""
