"""Talking to the master from Python, and runs that are started by hand."""

from determined._lacking import asked_of
from determined.experimental import client, core_v2
from determined.experimental.client import Determined

__all__ = ["Determined", "client", "core_v2"]

__getattr__ = asked_of(__name__)
