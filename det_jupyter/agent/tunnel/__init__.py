"""The tunnel between the agents of a gang on several computers."""
