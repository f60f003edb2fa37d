"""Compares two checkpoints bit by bit: `python -m det_jupyter.pytorch.checkpoints.compare A B`.

Every value of the state is compared, under a dotted name such as `models.0.fc.weight`: tensors by
their bits (so NaN equals NaN, and -0.0 is not 0.0), a list of numbers as if it were a tensor,
other values by type and value.

The exit status is 0 if they are the same, 1 if they differ, 2 if one cannot be read.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.checkpoints.restore import read_state

_NOT_COMPARED = ("arrays",)  # describes other values of the state


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value that differs between two checkpoints.

    Attributes:
        name: The value's dotted name.
        problem: What differs, in a few words.
        first: Index of the first element that differs; None unless both are tensors of one shape.
        count, total: Number of elements that differ, and number of all elements.
        largest: Largest difference between two elements; None if it is not finite, or the values
            are not numbers.
    """

    name: str
    problem: str
    first: tuple[int, ...] | None = None
    count: int = 1
    total: int = 1
    largest: float | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}"


def compare(
    a: Path | str | Mapping[str, Any], b: Path | str | Mapping[str, Any]
) -> list[Difference]:
    """Return the values that differ, in the order of `a`; an empty list if all bits are equal.

    Args:
        a, b: The folder of a checkpoint, or a dict of states.

    Raises:
        CheckpointError: A folder holds no training state.
    """
    return list(_differences(contents(a), contents(b)))


def contents(source: Path | str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in a checkpoint, or in a dict of states, by dotted name."""
    state = read_state(Path(source)) if isinstance(source, (Path, str)) else source
    return dict(_leaves({k: v for k, v in state.items() if k not in _NOT_COMPARED}, ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, (list, tuple)) and not _is_row(value):
        items = list(enumerate(value))
    else:
        yield name, _as_tensor(value)
        return
    if not items and name:
        yield name, value
    for key, item in items:
        yield from _leaves(item, f"{name}.{key}" if name else str(key))


def _is_row(value: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether these are numbers of one type that fit a tensor."""
    kinds = {type(item) for item in value}
    if len(value) < 2 or len(kinds) != 1 or not kinds <= {int, float}:
        return False
    return kinds == {float} or all(-(2**63) <= item < 2**63 for item in value)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return torch.tensor(value, dtype=torch.float64 if type(value[0]) is float else torch.int64)
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        return value.to_dense()
    return value


def _differences(a: dict[str, Any], b: dict[str, Any]) -> Iterator[Difference]:
    for name, one in a.items():
        if name not in b:
            yield Difference(name=name, problem="only in the first")
        elif (found := _difference(name, one, b[name])) is not None:
            yield found
    for name in b:
        if name not in a:
            yield Difference(name=name, problem="only in the second")


def _difference(name: str, one: Any, other: Any) -> Difference | None:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _tensor_difference(name, one.detach().cpu(), other.detach().cpu())
    if _is_same(one, other):
        return None
    return Difference(
        name=name,
        problem=f"{_shortened(one)} in the first, {_shortened(other)} in the second",
        largest=_distance(one, other),
    )


def _tensor_difference(name: str, one: torch.Tensor, other: torch.Tensor) -> Difference | None:
    if one.dtype != other.dtype or one.shape != other.shape:
        return Difference(name=name, problem=f"{_shortened(one)} and {_shortened(other)}")
    differs = (_bits(one) != _bits(other)).any(dim=1)
    count, total = int(differs.sum()), one.numel()
    if not count:
        return None
    index = int(differs.nonzero()[0])
    first = tuple(int(i) for i in numpy.unravel_index(index, one.shape))
    values = [tensor.reshape(-1)[differs] for tensor in (one, other)]
    largest = _largest(*values)
    by = "" if largest is None else f", at most by {largest:.3g}"
    return Difference(
        name=name,
        problem=(
            f"{count} of {total} elements differ{by}; the first is {list(first)}: "
            f"{values[0][0].item()!r} and {values[1][0].item()!r}"
        ),
        first=first,
        count=count,
        total=total,
        largest=largest,
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes, `[element, byte]`."""
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).reshape(tensor.numel(), -1) if len(flat) else flat.view(0, 1)


def _largest(one: torch.Tensor, other: torch.Tensor) -> float | None:
    wide = torch.complex128 if one.is_complex() else torch.float64
    largest = float((one.to(wide) - other.to(wide)).abs().max())
    return largest if math.isfinite(largest) else None


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return bool(one == other)


def _distance(one: Any, other: Any) -> float | None:
    numbers = all(isinstance(value, (int, float)) for value in (one, other))
    distance = abs(one - other) if numbers else math.nan
    return float(distance) if math.isfinite(distance) else None


def _shortened(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def main(arguments: list[str] | None = None) -> int:
    """Compare the checkpoints of the command line, print the result, return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m det_jupyter.pytorch.checkpoints.compare",
        description="Compare the training state in two checkpoints, bit by bit.",
    )
    parser.add_argument("a", type=Path, help="folder of a checkpoint")
    parser.add_argument("b", type=Path, help="folder of another")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        one, other = contents(options.a), contents(options.b)
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = list(_differences(one, other))
    tensors = sum(isinstance(value, torch.Tensor) for value in one.values())
    if options.json:
        listed = [asdict(difference) for difference in found]
        print(json.dumps({"tensors": tensors, "values": len(one), "differences": listed}))
    elif found:
        print("\n".join([f"{len(found)} of {len(one)} differ:", *map(str, found)]))
    else:
        print(f"identical: {tensors} tensors and {len(one) - tensors} other values")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
