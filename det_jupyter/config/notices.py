"""What of a configuration has no effect here, or probably another one than was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.config.checks import is_endless, log_policies
from det_jupyter.config.experiment import ExperimentConfig
from det_jupyter.config.keys import NO_CONTAINERS, NO_EFFECT
from det_jupyter.config.older import find_older
from det_jupyter.config.paths import look_up
from det_jupyter.config.steps import counts_in_steps
from det_jupyter.config.traps import find_traps
from det_jupyter.lengths import UNITS

_SCRIPT = re.compile(r"[\w-]+\.py")


def notices(document: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each key that has no effect, or is a trap, in their order.

    Each is `path: sentence.`

    Args:
        document: A configuration as it was written, merged or completed. What says the same as
            if it was left out is passed over.
    """
    found = [
        f"{path}: {remark}."
        for path, remark in NO_EFFECT.items()
        if _is_said(look_up(document, path), path)
    ]
    return sorted([*found, *_conditional(document)])


def _is_said(value: Any, path: str) -> bool:
    default = _default_of(path)
    return value != default if value is not None and default is not None else bool(value)


def _default_of(path: str) -> Any:
    section, _, key = path.rpartition(".")
    if not section:
        return None
    fields = type(ExperimentConfig.model_fields[section].default).model_fields
    return fields[key].default if key in fields else None


def _conditional(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what depends on the value, or on others."""
    if look_up(document, "checkpoint_storage.type") in (None, "shared_fs") and look_up(
        document, "checkpoint_storage.container_path"
    ):
        yield f"checkpoint_storage.container_path: {NO_CONTAINERS}."
    rocm = "environment.environment_variables.rocm"
    if look_up(document, rocm):
        yield f"{rocm}: ignored: slots are of kind cpu or cuda here."
    yield from _idle_policies(document)
    yield from _unmet_rungs(document)
    yield from find_older(document)
    if is_endless(document) and not counts_in_steps(document):  # it has a length by another name
        yield (
            "searcher.max_length: not given: the command trains as long as it likes; one that "
            "asks for its length (searcher.operations) gets 1 batch, and needs max_length."
        )
    yield from find_traps(document)
    yield from _script_alone(document)


def _script_alone(document: Mapping[str, Any]) -> Iterator[str]:
    entrypoint = document.get("entrypoint")
    if isinstance(entrypoint, str) and _SCRIPT.fullmatch(script := entrypoint.strip()):
        yield (
            f"entrypoint: {script} is run as a program, which is looked for on PATH; for the "
            f"script write python3 {script}."
        )


def _idle_policies(document: Mapping[str, Any]) -> Iterator[str]:
    for path, policy in log_policies(document):
        if policy.get("action") is not None:
            continue
        if policy.get("pattern") is None:
            remark = "no policy is built in: a name alone only disables one of the template"
        else:
            remark = "ignored: it has no action; give cancel_retries or exclude_node"
        yield f"{path}: {remark}."


def _unmet_rungs(document: Mapping[str, Any]) -> Iterator[str]:
    metric = look_up(document, "searcher.time_metric")
    period = document.get("min_validation_period")
    length = look_up(document, "searcher.max_length")
    in_epochs = isinstance(length, Mapping) and "epochs" in length
    is_never = period in ({"batches": 0}, {"records": 0}, {"epochs": 0}, 0)
    is_left_out = period is None and not in_epochs and metric not in UNITS
    if metric is not None and (is_never or is_left_out):
        yield (
            "min_validation_period: trials validate only at their end, so the search judges none "
            "before; set it."
        )
