"""Scalars of other tools (TensorBoard, MLflow) as metrics: their groups and names.

tag                                     group        name
train/loss, training/loss, loss/train   training     loss
val/loss, validation/loss, loss/val     validation   loss
val_loss, eval_loss, valid_loss         validation   as the tag
eval/loss, test/loss, of transformers   validation,  eval_loss, test_loss: what its Trainer
                                          test         calls them
the tag that is `searcher.metric`       validation   as there
any other tag                           training     as the tag
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.contract.values.bounds import MAX_AT, MAX_COUNT

_PHASES = {
    **dict.fromkeys(("train", "training"), "training"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation"), "validation"),
    "test": "test",
}
ARGUMENTS = "args/text_summary"  # where transformers writes its TrainingArguments
EPOCHS = {"epoch", "train/epoch"}  # of Lightning and transformers
_NO_METRICS = re.compile(  # of Lightning and transformers: counters, times, a placeholder
    r"(train/)?(epoch|total_flos|num_input_tokens_seen)|hp_metric"
    r"|(train|eval|test)[_/](\w+_)?"  # one of several data sets has a name
    r"(runtime|(samples|steps|tokens)_per_second|model_preparation_time)"
    r"|(train/)?(before_init|init|train|eval|test)[_/]mem_[cg]pu(_\w+)?"
)


class Scalar(NamedTuple):
    """A value of an event; `at` is in UTC seconds."""

    tag: str
    step: int
    value: float
    at: float


def scalars_in(event: Any) -> Iterator[Scalar]:
    """Yield the scalars of an Event, a protocol buffer of TensorBoard, in all forms of writers."""
    for value in event.summary.value:
        tensor = value.tensor
        if value.HasField("simple_value"):
            numbers = [value.simple_value]
        elif value.metadata.plugin_data.plugin_name == "scalars":
            code = {4: "<f", 8: "<d"}.get(len(tensor.tensor_content))
            packed = struct.unpack(code, tensor.tensor_content) if code else ()
            numbers = [*tensor.float_val, *tensor.double_val, *packed]
        else:
            continue
        if len(numbers) == 1:
            yield Scalar(value.tag, event.step, numbers[0], event.wall_time)


def metric_of(tag: str, searcher_metric: str) -> tuple[str, str]:
    """Return group and name of the metric that a tag stands for.

    >>> metric_of("loss/train", "val_acc"), metric_of("val_acc", "val_acc")
    (('training', 'loss'), ('validation', 'val_acc'))
    >>> metric_of("eval/loss", "eval_loss"), metric_of("accuracy", "accuracy")
    (('validation', 'eval_loss'), ('validation', 'accuracy'))
    """
    if searcher_metric in (tag, tag.replace("/", "_")):
        return "validation", searcher_metric
    parts = tag.split("/")
    if parts[0] in ("eval", "test"):
        return _PHASES[parts[0]], tag.replace("/", "_", 1)
    for index in (0, -1) if len(parts) > 1 else ():
        if group := _PHASES.get(parts[index].lower()):
            del parts[index]
            return group, "/".join(parts)
    return _PHASES.get(tag.lower().partition("_")[0], "training"), tag


def is_metric(name: str) -> bool:
    """Return whether a value that a trainer logs is a metric, not its own counter or time.

    >>> [is_metric(name) for name in ("eval_loss", "eval_runtime", "train/epoch", "best_epoch")]
    [True, False, False, True]
    """
    return _NO_METRICS.fullmatch(name) is None


def records_of(scalars: Iterable[Scalar], searcher_metric: str) -> list[MetricsReported]:
    """Return scalars as records; consecutive ones of one group and step are one record."""
    records: list[MetricsReported] = []
    last: dict[tuple[str, int], MetricsReported] = {}
    for tag, step, value, at in scalars:
        group, name = metric_of(tag, searcher_metric)
        if not is_metric(tag) or "." in group or not name or not 0 <= step <= MAX_COUNT:
            continue
        record = last.get((group, step))
        if record is None or name in record.metrics:
            when = at if 0 < at <= MAX_AT else time.time()
            record = MetricsReported(at=when, group=group, steps_completed=step, metrics={})
            records.append(record)
            last[group, step] = record
        record.metrics[name] = value
    return records
