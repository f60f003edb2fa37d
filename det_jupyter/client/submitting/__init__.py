"""From a configuration and code to a request for an experiment."""
