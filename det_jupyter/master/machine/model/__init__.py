"""The machine's state, its events and commands, and which state may follow which."""
