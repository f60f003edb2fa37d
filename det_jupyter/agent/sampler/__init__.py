"""Samples of the machine: the computer, its GPUs, and the processes of ranks."""
