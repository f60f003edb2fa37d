"""What each kind of event does, one file per speaker."""
