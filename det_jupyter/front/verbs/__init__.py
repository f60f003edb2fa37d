"""Lines such as `%det job list`: their arguments, and the tables and texts that they print."""
