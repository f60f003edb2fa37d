"""Training a trial: the loop, and the entry points that build and start it."""
