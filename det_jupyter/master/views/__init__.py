"""Wire views of the machine's state. Pure."""
