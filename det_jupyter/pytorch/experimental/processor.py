"""The class that a user writes for batch inference, and its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from det_jupyter import core
from det_jupyter.core.train import tensorboard_folder
from det_jupyter.pytorch.data import to_device
from det_jupyter.pytorch.experimental.reducer_states import InferenceReducers
from det_jupyter.pytorch.reducers.metric_reducer import MetricReducer
from det_jupyter.pytorch.trial.tensorboard import TensorBoard

Model = TypeVar("Model", bound=nn.Module)


class TorchBatchProcessorContext:
    """The context of a processor, on each rank.

    Attributes:
        device: This rank's device.
        distributed: The ranks and their collectives.
    """

    def __init__(
        self,
        context: core.Context,
        device: torch.device,
        outputs: Path,
        reducers: InferenceReducers,
    ) -> None:
        self.device = device
        self.distributed = context.distributed
        self.sources: list[str] = []  # checkpoints and models reported by `report_task_using_…`
        self._core = context
        self._outputs = outputs
        self._reducers = reducers
        self._unmovable: set[type] = set()

    def get_hparams(self) -> dict[str, Any]:
        """Return the experiment's hyperparameters; none in a plain script or notebook."""
        return dict(self._core.info.hparams) if self._core.info else {}

    def get_distributed_rank(self) -> int:
        """Return this rank."""
        return self.distributed.rank

    def get_distributed_size(self) -> int:
        """Return how many ranks there are."""
        return self.distributed.size

    def to_device(self, data: Any) -> Any:
        """Return the data on this rank's device: tensors and arrays in dicts, lists and tuples."""
        return to_device(data, self.device, self._unmovable)

    def prepare_model_for_inference(self, model: Model) -> Model:
        """Return the model on this rank's device, in evaluation mode."""
        return model.eval().to(self.device)

    @contextmanager
    def upload_path(self) -> Iterator[Path]:
        """Yield the folder for result files of this rank.

        The files become part of the next checkpoint; those of an interval that is not completed by
        a checkpoint are removed. Between two checkpoints it is the same folder, so name files
        after the batch; after a checkpoint it is empty again.
        """
        self._outputs.mkdir(parents=True, exist_ok=True)
        yield self._outputs

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = False,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Register a reducer and return the MetricReducer; call it in `__init__`.

        Its metric over all records is reported as a validation metric at the end, also after
        pauses and kills.

        Args:
            reducer: A MetricReducer, or a function of the list of all values (add one with
            `update`
                of what is returned).
            name: The name of its metric; None: it returns a dict of metrics.
            for_training, for_validation: For processors written for Determined; without effect.
        """
        return self._reducers.wrap(reducer, name)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of any group now. Only the chief (rank 0) may."""
        self._core.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Record in the metadata of every checkpoint that the model comes from this checkpoint."""
        self.sources.append(f"checkpoint {getattr(checkpoint, 'uuid', checkpoint)}")

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Record in the metadata of every checkpoint that this version of a model is used."""
        name = getattr(model_version, "name", None) or model_version
        self.sources.append(f"model {name}")

    def get_tensorboard_path(self) -> Path:
        """Return this rank's folder for TensorBoard's files: the same as for a trial."""
        info = self._core.info
        if info is None:
            folder = Path("tensorboard")
        else:
            folder = tensorboard_folder(info.data_dir, info.experiment_id, info.trial_id)
        return TensorBoard(folder, self.distributed.rank).path


class TorchBatchProcessor:
    """Base class of processors: define `__init__` and `process_batch`.

    Args:
        context: Store it: `self.context = context`.
    """

    def __init__(self, context: TorchBatchProcessorContext) -> None:
        raise NotImplementedError

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Process a batch, without gradients.

        Args:
            batch: A batch of the loader, on the host; `context.to_device` moves it.
            batch_idx: The batch's number in the dataset, which is unique over all ranks.
        """
        raise NotImplementedError

    def on_checkpoint_start(self) -> None:
        """Write results that are still in memory into `upload_path`: a checkpoint follows.

        Called on all ranks, also before the last checkpoint.
        """

    def on_finish(self) -> None:
        """Write final results. Called once on all ranks, when all batches are done.

        Files in `upload_path` are part of the last checkpoint.
        """


def get_default_device(core_context: core.Context) -> torch.device:
    """Return this rank's device: that of its slot; outside of experiments, a GPU if any."""
    if core_context.info is not None:
        return core_context.info.device
    if torch.cuda.is_available():
        return torch.device("cuda", core_context.distributed.local_rank)
    return torch.device("cpu")
