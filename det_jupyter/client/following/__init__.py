"""Follows experiments and logs until they end; reports hangs."""
