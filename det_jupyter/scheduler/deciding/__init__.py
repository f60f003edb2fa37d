"""Who starts, and who has to leave: a pool of slots, and the pass that decides."""
