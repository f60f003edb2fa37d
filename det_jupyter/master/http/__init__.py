"""The HTTP interface: routes, and what they share."""
