"""Answers to questions of live views, for the kernel and the reader."""
