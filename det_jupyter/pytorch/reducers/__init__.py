"""Reducers: one value of a metric from many batches and ranks."""
