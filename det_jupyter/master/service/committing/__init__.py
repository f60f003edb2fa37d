"""A request or a batch of reports is handled and stored at once, or nothing of it."""
