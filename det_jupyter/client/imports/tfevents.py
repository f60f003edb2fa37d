"""Reads the scalars and hyperparameters of TensorBoard's event files, by the package tensorboard.

A file is a sequence of records, and a record is an Event (a protocol buffer) in a frame:

    uint64 length, uint32 masked CRC-32C of it, the bytes, uint32 masked CRC-32C of them

TensorBoard's own loader ends at a damaged record without an error, opens the file by its name
again and again, and reads a record of any length into memory. So the frames are read here; the
checksum and the protocol buffers are those of the package.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]  # has none
from tensorboard.plugins.hparams.plugin_data_pb2 import (  # type: ignore[import-untyped]
    HParamsPluginData,
)
from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]
    masked_crc32c,
)

from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.run.scalars import ARGUMENTS, Scalar, scalars_in
from det_jupyter.contract.values.text import count

_START = 1  # SessionLog.START: the writer began anew from this step
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_FRAME_BYTES = _HEADER.size + _FOOTER.size
# Of a record; images and graphs may have more. [m] One of 4 MiB without anything but empty parts
# takes 200 MiB when it is parsed.
_MOST_BYTES = 2**22
_KINDS = ("number_value", "string_value", "bool_value")
# Those of transformers' TrainingArguments that are hyperparameters; there are 100 others.
_TRAINING_ARGUMENTS = (
    "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps",
    "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "lr_scheduler_type", "optim",
    "seed",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class EventFile:
    """The content of an event file.

    Args:
        scalars: The scalars, in the order of the file, without those that its writer has
            discarded.
        hparams: Hyperparameters by name.
        num_events: How many events were read.
        restarts_at: The step from which on its writer has discarded earlier values, by a restart;
            None: there was no restart.
        problem: Why not all of it was read; "": it was.
    """

    scalars: list[Scalar] = field(default_factory=list)
    hparams: dict[str, Any] = field(default_factory=dict)
    num_events: int = 0
    problem: str = ""
    restarts_at: int | None = None


def read_event_file(path: Path) -> EventFile:
    """Read an event file as far as it can be read.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    found = EventFile()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        at = num_long = num_odd = 0
        problems = []
        try:
            while at < size:
                length, record = _record(file, size - at)
                if record is None:
                    num_long += 1
                else:
                    try:
                        _add_event(found, Event.FromString(record))
                        found.num_events += 1
                    except DecodeError:
                        num_odd += 1
                at += _FRAME_BYTES + length
        except ValueError as error:
            problems.append(
                f"{error} at byte {at} of {size}; {found.num_events} events before it were read"
            )
    if num_odd:
        odd = count(num_odd, "event")
        problems.append(f"{odd} left out: no protocol buffer, or a tag that is not UTF-8")
    if num_long:
        long = count(num_long, "event")
        problems.append(
            f"{long} of over {_MOST_BYTES >> 20} MiB left out, as no scalar is so long"
        )
    found.problem = "; ".join(problems)
    return found


def _record(file: BinaryIO, left: int) -> tuple[int, bytes | None]:
    """Return the length of a file's next record, and the record; `left` bytes remain to be read.

    A record that is too long is skipped, and None is returned for it.

    Raises:
        ValueError: It is not whole, or damaged.
    """
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise ValueError("the last event is not whole")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc32c(header[:8]):
        raise ValueError("damaged")
    if _FRAME_BYTES + length > left:
        raise ValueError("the last event is not whole")
    if length > _MOST_BYTES:
        file.seek(length + _FOOTER.size, os.SEEK_CUR)
        return length, None
    record, footer = file.read(length), file.read(_FOOTER.size)
    if len(footer) < _FOOTER.size:
        raise ValueError("the last event is not whole")  # the file was cut meanwhile
    if _FOOTER.unpack(footer)[0] != masked_crc32c(record):
        raise ValueError("damaged")
    return length, record


def _add_event(found: EventFile, event: Any) -> None:
    if event.session_log.status == _START:
        found.scalars = [each for each in found.scalars if each.step < event.step]
        before = event.step if found.restarts_at is None else found.restarts_at
        found.restarts_at = min(before, event.step)
    found.scalars += scalars_in(event)
    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "hparams":
            found.hparams |= _hparams_in(value.metadata.plugin_data.content)
        elif value.tag == ARGUMENTS and value.tensor.string_val:
            found.hparams |= _training_arguments(value.tensor.string_val[-1])


def _hparams_in(content: bytes) -> dict[str, Any]:
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    return {
        name: _whole(getattr(value, kind))
        for name, value in hparams.items()
        if (kind := value.WhichOneof("kind")) in _KINDS
    }


def _whole(value: Any) -> Any:
    """Return a number without a fraction as int: the format has doubles only."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


def _training_arguments(text: bytes) -> dict[str, Any]:
    given: Any = None
    with suppress(ValueError, RecursionError):
        given = json.loads(text)
    if not isinstance(given, Mapping):
        return {}
    return {name: given[name] for name in _TRAINING_ARGUMENTS if given.get(name) is not None}
