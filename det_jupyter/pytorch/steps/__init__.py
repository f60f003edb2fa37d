"""What a batch does to the weights."""
