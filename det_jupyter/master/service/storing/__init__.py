"""The database: its tables, and what is read of them."""
