"""Writing files for TensorBoard."""

from determined._lacking import asked_of

__getattr__ = asked_of(__name__)
