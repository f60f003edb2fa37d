"""The classes that a user derives from, and the context of a trial."""
