"""A callback for Hugging Face's Trainer. Needs the package transformers."""

from determined._lacking import asked_of
from determined.transformers._callback import DetCallback

__all__ = ["DetCallback"]

__getattr__ = asked_of(__name__)
