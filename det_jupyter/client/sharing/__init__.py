"""Experiments as files for others: archives that another master imports."""
