"""Makes the JSON of a view from the wire types. Pure."""
