"""Which slots this computer offers, and which other processes use its devices."""
