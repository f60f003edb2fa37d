"""Agreement between ranks."""
