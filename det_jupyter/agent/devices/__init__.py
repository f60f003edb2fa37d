"""Determines the slots of this computer; watches its devices and other processes on them."""
