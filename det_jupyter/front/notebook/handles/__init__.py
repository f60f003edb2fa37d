"""Handles of experiments, trials and slots, with their live view and progress bar."""
