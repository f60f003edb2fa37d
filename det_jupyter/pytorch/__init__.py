"""Training PyTorch models on many slots: Determined's trial API over DistributedDataParallel."""

from det_jupyter.pytorch import samplers
from det_jupyter.pytorch.callbacks import PyTorchCallback
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.load import load_trial_from_checkpoint_path
from det_jupyter.pytorch.loop import Trainer
from det_jupyter.pytorch.lr_scheduler import LRScheduler
from det_jupyter.pytorch.reducers import Reducer
from det_jupyter.pytorch.trial import PyTorchTrial, check_searcher_metric, check_trial_class

__all__ = [
    "DataLoader",
    "LRScheduler",
    "PyTorchCallback",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "Trainer",
    "check_searcher_metric",
    "check_trial_class",
    "load_trial_from_checkpoint_path",
    "samplers",
]
