"""Errors by Determined's names. All of them are ordinary exceptions here."""

from det_jupyter.errors import CheckpointError, Conflict, DetError, NotFound
from det_jupyter.errors import ConfigError as InvalidConfigurationException
from det_jupyter.errors import ConfigError as InvalidExperimentException
from det_jupyter.errors import DetError as InternalException
from det_jupyter.errors import InvalidHP as InvalidHP
from determined._lacking import asked_of

CheckpointNotFound = CheckpointError
CheckpointStateException = CheckpointError
ExperimentNotFound = NotFound

__all__ = [
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointStateException",
    "Conflict",
    "DetError",
    "ExperimentNotFound",
    "InternalException",
    "InvalidConfigurationException",
    "InvalidExperimentException",
    "InvalidHP",
    "NotFound",
]

__getattr__ = asked_of(__name__)
