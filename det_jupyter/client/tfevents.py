"""Reads TensorBoard's event files: their scalars and hyperparameters. Needs no other package.

A file is a sequence of records, and a record is a protocol buffer (Event) in a frame:

    uint64 length, uint32 masked CRC-32C of it, the bytes, uint32 masked CRC-32C of them

Both checksums are checked. A file ends where a record is not whole, which is usual if its writer
was killed, or where it is damaged: what follows cannot be found. A record of over 64 MiB, which a
header alone can claim, is passed over. Of an Event these fields are read, by their numbers in
event.proto, summary.proto, tensor.proto and the plugins' files:

    Event           1 wall_time, 2 step, 5 summary, 7 session_log {1 status}
    Summary         1 value {1 tag, 2 simple_value, 8 tensor, 9 metadata {1 plugin_data}}
    tensor          4 tensor_content, 5 float_val, 6 double_val, 8 string_val
    plugin_data     1 plugin_name, 2 content; of "hparams": 3 session_start_info {1 hparams}
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.run.scalars import Scalar
from det_jupyter.contract.values.text import count

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reversed
_START = 1  # SessionLog.START: the writer began anew from this step
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_FRAME_BYTES = _HEADER.size + _FOOTER.size
_MOST_BYTES = 2**26  # of a record; videos and graphs may have more
_ARGUMENTS = "args/text_summary"  # where transformers writes its TrainingArguments
# Those of them that are hyperparameters; there are 100 others.
_TRAINING_ARGUMENTS = (
    "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps",
    "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "lr_scheduler_type", "optim",
    "seed",
)  # fmt: skip


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ _POLYNOMIAL * (byte & 1)
        table.append(byte)
    return table


_TABLE = _table()


@dataclass(slots=True, kw_only=True)
class EventFile:
    """What was read of an event file.

    Args:
        scalars: In the order of the file, without those that its writer has taken back.
        hparams: Hyperparameters by name.
        num_events: How many events were read.
        restarts_at: The step from which on its writer has taken back what was written before;
            None: it has not.
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
        at = num_long = 0
        problems = []
        try:
            while at < size:
                length, event = _record(file, size - at)
                if event is None:
                    num_long += 1
                else:
                    _add_event(found, memoryview(event))
                    found.num_events += 1
                at += _FRAME_BYTES + length
        except ValueError as error:
            problems.append(
                f"{error} at byte {at} of {size}; {found.num_events} events before it were read"
            )
    if num_long:
        long = count(num_long, "event")
        problems.append(
            f"{long} of over {_MOST_BYTES >> 20} MiB left out, as no scalar is so long"
        )
    found.problem = "; ".join(problems)
    return found


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the checksum of a frame.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _record(file: BinaryIO, left: int) -> tuple[int, bytes | None]:
    """Return the length of the next record of a file that has so many bytes left, and the record.

    One that is too long is passed over: None.

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


def _add_event(found: EventFile, record: memoryview) -> None:
    event = _Message(record)
    at, step = event.double(1), event.whole(2)
    for session in event.messages(7):
        if session.whole(1) == _START:
            found.scalars = [each for each in found.scalars if each.step < step]
            before = step if found.restarts_at is None else found.restarts_at
            found.restarts_at = min(before, step)
    for summary in event.messages(5):
        for value in summary.messages(1):
            _add_value(found, value, at, step)


def _add_value(found: EventFile, value: _Message, at: float, step: int) -> None:
    tag = value.text(1)
    if (number := value.single(2)) is not None:
        found.scalars.append(Scalar(tag, step, number, at))
        return
    plugin = next((each for part in value.messages(9) for each in part.messages(1)), None)
    name = "" if plugin is None else plugin.text(1)
    if name == "hparams" and plugin is not None:
        found.hparams |= _hparams_in(plugin)
        return
    for tensor in value.messages(8):
        if tag == _ARGUMENTS:
            found.hparams |= _training_arguments(tensor.text(8))
        elif name == "scalars" and len(numbers := tensor.numbers()) == 1:
            found.scalars.append(Scalar(tag, step, numbers[0], at))


def _hparams_in(plugin: _Message) -> dict[str, Any]:
    """Return the values in a session_start_info: a map of google.protobuf.Value."""
    found: dict[str, Any] = {}
    for content in plugin.messages(2):
        for start in content.messages(3):
            for entry in start.messages(1):
                for value in entry.messages(2):
                    number = value.double(2, None)
                    is_true = value.whole(4, None)
                    if number is not None:
                        is_whole = number.is_integer() and abs(number) < 2**53
                        found[entry.text(1)] = int(number) if is_whole else number
                    else:
                        found[entry.text(1)] = (
                            bool(is_true) if is_true is not None else value.text(3)
                        )
    return found


def _training_arguments(text: str) -> dict[str, Any]:
    given: Any = None
    with suppress(ValueError):
        given = json.loads(text)
    if not isinstance(given, Mapping):
        return {}
    return {name: given[name] for name in _TRAINING_ARGUMENTS if given.get(name) is not None}


class _Message:
    """A protocol buffer, parsed into its fields: (number, value), of wire types 0, 1, 2 and 5.

    Raises:
        ValueError: It is no protocol buffer.
    """

    def __init__(self, data: memoryview) -> None:
        self._fields: dict[int, list[Any]] = {}
        for number, value in _fields_of(data):
            self._fields.setdefault(number, []).append(value)

    def messages(self, number: int) -> Iterator[_Message]:
        return (_Message(each) for each in self._of(number, memoryview))

    def text(self, number: int) -> str:
        return "".join(str(each, "utf-8", "replace") for each in self._of(number, memoryview)[-1:])

    def whole(self, number: int, default: Any = 0) -> Any:
        for value in self._of(number, int)[-1:]:
            return value - 2**64 if value >= 2**63 else value
        return default

    def double(self, number: int, default: Any = 0.0) -> Any:
        for value in self._of(number, bytes)[-1:]:
            return struct.unpack("<d", value)[0] if len(value) == 8 else default
        return default

    def single(self, number: int) -> float | None:
        for value in self._of(number, bytes)[-1:]:
            return float(struct.unpack("<f", value)[0]) if len(value) == 4 else None
        return None

    def numbers(self) -> list[float]:
        """Return the values of a TensorProto of floats or doubles."""
        for number, code in ((5, "f"), (6, "d")):
            parts = [bytes(each) for each in self._fields.get(number, ())]
            if joined := b"".join(parts):
                return list(
                    struct.unpack(f"<{len(joined) // struct.calcsize(code)}{code}", joined)
                )
        content = b"".join(map(bytes, self._of(4, memoryview)))
        code = {4: "f", 8: "d"}.get(len(content), "")
        return list(struct.unpack(f"<{code}", content)) if code else []

    def _of(self, number: int, kind: type) -> list[Any]:
        return [each for each in self._fields.get(number, ()) if isinstance(each, kind)]


def _fields_of(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field: int, bytes of a fixed size, or a memoryview."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("an event that is no protocol buffer")
        part = data[at : at + size]
        if len(part) < size:
            raise ValueError("an event that is no protocol buffer")
        at += size
        yield number, part if kind == 2 else bytes(part)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("an event that is no protocol buffer")
