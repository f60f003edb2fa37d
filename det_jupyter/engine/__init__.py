"""Where agents come from."""
