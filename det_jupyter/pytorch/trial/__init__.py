"""What a user writes, and the context that a trial works with."""
