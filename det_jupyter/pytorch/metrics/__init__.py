"""Metrics: of batches, of validations, and of the trial's own reducers."""
