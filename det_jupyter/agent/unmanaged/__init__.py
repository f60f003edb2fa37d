"""The follower of a run that a user has started by hand; a program of its own."""
