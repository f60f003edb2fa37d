"""Where the time of a rank goes: marks in the loop, read later."""
