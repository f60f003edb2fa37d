"""The machine's state, its events and commands, and the allowed transitions of states."""
