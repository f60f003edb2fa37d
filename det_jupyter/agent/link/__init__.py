"""The connection of an agent to the master: registration, commands, reports."""
