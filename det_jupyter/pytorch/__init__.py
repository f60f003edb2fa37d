"""Training PyTorch models on many slots: Determined's trial API over DistributedDataParallel."""

from det_jupyter.pytorch.checkpoints.load import (
    CheckpointLoadContext,
    load_trial_from_checkpoint_path,
)
from det_jupyter.pytorch.data import (
    DataLoader,
    TorchData,
    adapt_batch_sampler,
    data_length,
    samplers,
    to_device,
)
from det_jupyter.pytorch.reducers.builtin_reducers import Reducer
from det_jupyter.pytorch.reducers.metric_reducer import MetricReducer
from det_jupyter.pytorch.rules import Batch, Epoch, TrainUnit
from det_jupyter.pytorch.steps.learning_rates import LRScheduler
from det_jupyter.pytorch.training.init import init
from det_jupyter.pytorch.training.trainer import Trainer
from det_jupyter.pytorch.training.trial_run import TrialRun
from det_jupyter.pytorch.training.try_out import try_out
from det_jupyter.pytorch.trial.callback import EarlyStopping, PyTorchCallback
from det_jupyter.pytorch.trial.context import PyTorchExperimentalContext, PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import (
    PyTorchTrial,
    check_constructor,
    check_searcher_metric,
    check_trial_class,
)

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "DataLoader",
    "EarlyStopping",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "TrialRun",
    "adapt_batch_sampler",
    "check_constructor",
    "check_searcher_metric",
    "check_trial_class",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
    "try_out",
]
