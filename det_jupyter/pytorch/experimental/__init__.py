"""Batch inference on all ranks: each record of a dataset once, also after pauses and kills."""

from det_jupyter.pytorch.experimental.inference import Outcome, torch_batch_process
from det_jupyter.pytorch.experimental.outputs import output_files
from det_jupyter.pytorch.experimental.processor import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    get_default_device,
)

__all__ = [
    "Outcome",
    "TorchBatchProcessor",
    "TorchBatchProcessorContext",
    "get_default_device",
    "output_files",
    "torch_batch_process",
]
