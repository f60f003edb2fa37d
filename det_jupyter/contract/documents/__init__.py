"""Documents: what a person sees as versions of JSON, and the changes between two versions."""
