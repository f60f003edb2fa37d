"""A callback for Keras 3 on torch. Needs the package keras."""

from determined._lacking import asked_of
from determined.keras._callback import DeterminedCallback

__all__ = ["DeterminedCallback"]

__getattr__ = asked_of(__name__)
