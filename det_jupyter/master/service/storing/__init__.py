"""The database: its tables, and functions that read them."""
