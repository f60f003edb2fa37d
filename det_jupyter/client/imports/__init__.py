"""Imports runs of other tools, and writes event files of TensorBoard."""
