"""The master: a pure machine, and the service around it that does its I/O."""
