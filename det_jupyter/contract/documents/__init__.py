"""Documents: the JSON that pages display, in versions, and the changes between two versions."""
