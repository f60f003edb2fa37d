"""Submits the experiment that a cell describes, previews it, or tries it in the kernel."""
