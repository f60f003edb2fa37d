"""The JSON that a view is drawn from."""
