"""The agent: owns the slots of one computer, keeps gangs of ranks, and ships what they write."""
