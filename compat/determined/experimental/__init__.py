"""Talking to the master from Python."""

from determined._lacking import asked_of
from determined.experimental import client
from determined.experimental.client import Determined

__all__ = ["Determined", "client"]

__getattr__ = asked_of(__name__)
