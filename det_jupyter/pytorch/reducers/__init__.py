"""Reducers: one number of many batches and ranks."""
