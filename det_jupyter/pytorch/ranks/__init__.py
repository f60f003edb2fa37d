"""Agreement between ranks, and failures of one of them."""
