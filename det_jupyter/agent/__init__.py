"""The agent: offers the slots of one computer, runs gangs, and sends their files to the master."""
