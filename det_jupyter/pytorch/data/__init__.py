"""Loading data: the DataLoader, and each rank's stream of its parts of global batches."""

from det_jupyter.pytorch.data.batches import TorchData, data_length, to_device
from det_jupyter.pytorch.data.division import Share
from det_jupyter.pytorch.data.loader import DataLoader
from det_jupyter.pytorch.data.open_streams import open_training, open_validation
from det_jupyter.pytorch.data.samplers import adapt_batch_sampler
from det_jupyter.pytorch.data.streams import BatchStream

__all__ = [
    "BatchStream",
    "DataLoader",
    "Share",
    "TorchData",
    "adapt_batch_sampler",
    "data_length",
    "open_training",
    "open_validation",
    "to_device",
]
