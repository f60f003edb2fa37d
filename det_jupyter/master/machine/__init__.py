"""The machine: takes events, returns commands, and does nothing else. Pure."""
