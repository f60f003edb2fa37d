"""Makes the request for an experiment from a configuration and code."""
