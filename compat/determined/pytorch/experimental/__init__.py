"""Batch inference, which is `det_jupyter.pytorch.experimental`."""

from det_jupyter.pytorch.experimental import *
from determined._lacking import asked_of

__getattr__ = asked_of(__name__)
