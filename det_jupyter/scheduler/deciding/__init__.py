"""A pool of slots, and the pass that decides which gangs start and which have to leave."""
