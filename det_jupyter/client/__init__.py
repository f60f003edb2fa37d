"""Handles on what the master has: experiments, trials, ranks, checkpoints."""

from det_jupyter.client.checkpoint import Checkpoint
from det_jupyter.client.client import Client
from det_jupyter.client.compare import Comparison
from det_jupyter.client.diagnosed import Diagnosis
from det_jupyter.client.experiment import Experiment
from det_jupyter.client.follow import Follower
from det_jupyter.client.rank import ExecutionError, Rank
from det_jupyter.client.trial import Trial

__all__ = [
    "Checkpoint",
    "Client",
    "Comparison",
    "Diagnosis",
    "ExecutionError",
    "Experiment",
    "Follower",
    "Rank",
    "Trial",
]
