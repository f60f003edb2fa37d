"""The Core API, which is `det_jupyter.core`."""

from det_jupyter.core import *
from determined._lacking import asked_of

__getattr__ = asked_of(__name__)
