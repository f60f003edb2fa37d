"""The master: the pure machine in the middle, and the thin shell around it."""
