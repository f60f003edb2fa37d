"""The rules of a run: lengths, periods, the schedule."""
