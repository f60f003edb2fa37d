"""Wire views in, the JSON of a view out. Pure."""
