"""Agreement between ranks, and their process group."""
