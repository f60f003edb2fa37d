"""The loop around the machine, and the store: event in, committed, then acted upon."""
