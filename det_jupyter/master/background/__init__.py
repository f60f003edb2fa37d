"""Background tasks of the master: deletions, clean-up, agents, queries of samplers."""
