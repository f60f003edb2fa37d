"""Training a trial: the loop, and those who set it going."""
