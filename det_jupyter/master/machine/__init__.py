"""The machine: events in, commands out, nothing else. Pure."""
