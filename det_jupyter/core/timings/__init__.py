"""Times the parts of a rank's work, by marks in the training loop that are read later."""
