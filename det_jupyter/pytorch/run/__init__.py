"""What a run has to do: lengths, periods, arguments."""
