"""Reads the JSON of torch's flight recorder: the last collectives that a rank has begun. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST = 5
_IS_OF = {"allreduce": "all_reduce", "allgather": "all_gather", "_broadcast_oop": "broadcast"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A collective in the flight recorder.

    Args:
        number: Its number in its group.
        group: Name of the group.
        text: `all_reduce [4] float32`.
        is_pending: Whether it was not over.
    """

    number: int
    group: str
    text: str
    is_pending: bool

    @property
    def is_of_default_group(self) -> bool:
        """Whether the collective is of the group of all ranks."""
        return self.group in ("0", "default_pg")

    def __str__(self) -> str:
        state = "pending" if self.is_pending else "done"
        group = "" if self.is_of_default_group else f" of group {self.group}"
        return f"{self.number}{group}: {self.text}, {state}"


def read_recorder(data: bytes) -> list[Recorded]:
    """Return the last collectives of a rank, oldest first; [] if nothing is recorded."""
    try:
        document = json.loads(data)
        entries = document.get("entries") or []
        return [_recorded(entry) for entry in entries[-_MOST:]]
    except (ValueError, AttributeError, TypeError, KeyError):
        return []


def pending(recorded: list[Recorded]) -> Recorded | None:
    """Return the first collective that is not over."""
    return next((one for one in recorded if one.is_pending), None)


def _recorded(entry: Mapping[str, Any]) -> Recorded:
    name = str(entry.get("profiling_name", "")).partition(":")[2]
    sizes = entry.get("input_sizes") or entry.get("output_sizes") or []
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes") or []
    parts = [_IS_OF.get(name, name) or "a collective"]
    if sizes:
        parts.append(str(list(sizes[0])))
    if dtypes:
        parts.append(_TYPES.get(str(dtypes[0]), str(dtypes[0]).lower()))
    group = entry.get("process_group") or [""]
    state = entry.get("state")
    is_over = bool(entry.get("retired")) or state == "completed"
    return Recorded(
        number=int(entry.get("collective_seq_id") or 0),
        group=str(group[0]),
        text=" ".join(parts),
        is_pending=not is_over,
    )


_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Byte": "uint8", "Char": "int8", "Bool": "bool",
}  # fmt: skip
