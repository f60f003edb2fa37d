"""What is wrong with the arguments of `init` and `fit`: all of it at once, in the user's terms."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.run.rules import Policy
from det_jupyter.pytorch.run.units import Batch, Epoch, TrainUnit


def check_init(*, hparams: Any, exp_conf: Any, aggregation_frequency: Any, seed: Any) -> None:
    """Check the arguments of `init` that anything could be given for.

    Raises:
        ConfigError: Every one that cannot be used.
    """
    problems = [
        f"init: {name}: got {value!r}, expected a dict"
        for name, value in {"hparams": hparams, "exp_conf": exp_conf}.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    if aggregation_frequency is not None and not _is_whole(aggregation_frequency, 1):
        problems.append(
            f"init: aggregation_frequency: got {aggregation_frequency!r}, expected at least 1"
        )
    if seed is not None and not _is_whole(seed, 0):
        problems.append(f"init: seed: got {seed!r}, expected a whole number of at least 0")
    if problems:
        raise ConfigError(problems)


def check_fit(
    *,
    max_length: Any,
    periods: Mapping[str, Any],
    checkpoint_policy: Any,
    latest_checkpoint: Any,
) -> None:
    """Check the arguments of `fit`.

    Raises:
        ConfigError: Every one that cannot be used.
    """
    problems = []
    if max_length is not None and not _is_amount(max_length):
        problems.append(
            f"fit: max_length: got {max_length!r}, expected pytorch.Batch(n) or pytorch.Epoch(n) "
            "with n of at least 1"
        )
    for name, period in periods.items():
        if period is not None and not isinstance(period, (Batch, Epoch)):
            problems.append(
                f"fit: {name}: got {period!r}, expected pytorch.Batch(n), pytorch.Epoch(n), or "
                "one of them with the counts after which it is due"
            )
    if checkpoint_policy not in get_args(Policy):
        known = get_args(Policy)
        near = get_close_matches(str(checkpoint_policy), known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        problems.append(
            f"fit: checkpoint_policy: got {checkpoint_policy!r}, expected one of "
            f"{', '.join(map(repr, known))}{hint}"
        )
    if latest_checkpoint is not None and not isinstance(latest_checkpoint, (str, Path)):
        problems.append(
            f"fit: latest_checkpoint: got {latest_checkpoint!r}, expected the folder or the uuid "
            "of a checkpoint"
        )
    if problems:
        raise ConfigError(problems)


def _is_amount(unit: Any) -> bool:
    return isinstance(unit, TrainUnit) and _is_whole(unit.value, 1)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
