"""Documents, logs and hangs of what runs, followed until they end."""
