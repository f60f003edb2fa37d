"""The HTTP interface: the application, its routes, and the checks before them."""
