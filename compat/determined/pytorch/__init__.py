"""The trial API, which is `det_jupyter.pytorch`."""

from det_jupyter.pytorch import *
from determined._lacking import asked_of

__getattr__ = asked_of(__name__)
