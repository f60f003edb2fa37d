"""The loop around the machine, and the store: an event is committed, then acted upon."""
