"""Notices about keys without effect here, and about values that are probably mistakes.

Probable mistakes:

    lr: {minval: 0.1, maxval: 1}                        no type: a constant that is a mapping
    width: [32, 64], with a search                      one value that is a list, not two values
    width: 32, 64                                       a text
    lr: {type: log, minval: 0.0001, maxval: 0.1}        exponents: from 10^0.0001 to 10^0.1
    no ranges at all, with a search                     all trials train the same
    layers: [{type: int, minval: 1, maxval: 8}]         a constant that is a list
    optimizer: None                                     the text "None", not null
    metric: accuracy, without smaller_is_better: false  the lowest accuracy counts as the best
    slots_per_trial: 2, below hyperparameters           a hyperparameter, no key of resources
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.config.cross_checks import is_endless, log_policies
from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import NO_CONTAINERS, NO_EFFECT
from det_jupyter.config.migrate import migrate
from det_jupyter.config.places import find_swallowed
from det_jupyter.config.sections import Alert
from det_jupyter.contract.schema.fields import as_number, as_whole
from det_jupyter.contract.schema.hyperparameters import is_nested, is_range, ranges_in_lists
from det_jupyter.contract.schema.key_paths import format_value, join, look_up, section
from det_jupyter.contract.values.addresses import is_in_the_clear
from det_jupyter.contract.values.direction import is_smaller_better
from det_jupyter.contract.values.lengths import UNITS
from det_jupyter.contract.values.text import count
from det_jupyter.searcher.methods import find_section
from det_jupyter.searcher.searcher_section import SearcherSection

_SCRIPT = re.compile(r"[\w-]+\.py")
_NAMES_OF_LISTS = re.compile(
    r"([^s]s|shape|mean|std|range|schedule|list|tuple|vector|kernel|window|crop)(_?\d+)?$", re.I
)
_NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*"
_LISTED_NUMBERS = re.compile(rf"{_NUMBER}(,{_NUMBER})+", re.I)
_RANGE_KEYS = {"minval", "maxval", "vals", "base", "count"}


def notices(document: Mapping[str, Any]) -> list[str]:
    """Return a notice `path: sentence.` for each such key, sorted.

    Args:
        document: A configuration as it was written, merged or effective. Keys with their default
            value get no notice.
    """
    document, _, found = migrate(document)
    found += [
        f"{path}: {remark}."
        for path, remark in NO_EFFECT.items()
        if _is_given(look_up(document, path), path)
    ]
    return sorted([*found, *_conditional(document)])


def _is_given(value: Any, path: str) -> bool:
    """Return whether a value is given and differs from the default."""
    section, _, key = path.rpartition(".")
    default = None
    if section:
        fields = type(ExperimentConfig.model_fields[section].default).model_fields
        default = fields[key].default if key in fields else None
    return value != default if value is not None and default is not None else bool(value)


def _conditional(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the notices that depend on values."""
    if look_up(document, "checkpoint_storage.type") in (None, "shared_fs") and look_up(
        document, "checkpoint_storage.container_path"
    ):
        yield f"checkpoint_storage.container_path: {NO_CONTAINERS}."
    rocm = "environment.environment_variables.rocm"
    if look_up(document, rocm):
        yield f"{rocm}: ignored: slots are of kind cpu or cuda here."
    yield from _idle_policies(document)
    yield from _unmet_rungs(document)
    if is_endless(document):
        yield (
            "searcher.max_length: not given: the command decides itself how long it trains; one "
            "that reads searcher.operations gets 1 batch, and needs max_length."
        )
    yield from _find_direction(document)
    yield from find_traps(document)
    yield from _find_nones(document)
    yield from _readable_alerts(document)
    yield from find_swallowed(document)
    yield from _script_alone(document)


def _readable_alerts(document: Mapping[str, Any]) -> Iterator[str]:
    alerts = document.get("alerts")
    for index, alert in enumerate(alerts if isinstance(alerts, list) else ()):
        for way in Alert.WAYS if isinstance(alert, Mapping) else ():
            url = alert.get(way)
            if isinstance(url, str) and url.startswith("http://") and is_in_the_clear(url):
                yield (
                    f"alerts[{index}].{way}: over http, others on the way can read the alerts and "
                    "the address, which is all that is needed to post there; prefer https://."
                )


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


def _find_direction(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice if `smaller_is_better` does not fit the name of the metric."""
    path = "searcher.smaller_is_better"
    metric, given = look_up(document, "searcher.metric"), look_up(document, path)
    is_smaller = True if given is None else given
    by_name = is_smaller_better(metric) if isinstance(metric, str) else None
    if by_name is None or by_name == is_smaller or not isinstance(is_smaller, bool):
        return
    written = "not given, so true" if given is None else format_value(given)
    least, other = ("smallest", "larger") if is_smaller else ("largest", "smaller")
    yield (
        f"{path}: {written}: the {least} {metric} counts as the best; if {other} is better, write "
        f"{path.rpartition('.')[2]}: {format_value(not is_smaller)}."
    )


def _find_nones(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield one notice about all texts "None", which is no null in YAML."""
    first, *others = [
        path
        for section in ("hyperparameters", "data")
        for path, value in _values(document.get(section), section)
        if value == "None"
    ] or [""]
    if first:
        more = f" (as in {count(len(others), 'other place')})" if others else ""
        yield f'{first}: None is the text "None" in YAML{more}; for no value write null.'


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all values that are neither mappings nor lists, with their paths."""
    if isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _values(item, join(path, key))
    else:
        yield path, value


def find_traps(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield notices about hyperparameters that are probably mistakes."""
    hparams = document.get("hyperparameters") or {}
    searcher = find_section(section(document, "searcher"))
    is_search = searcher is not None and searcher.is_search
    if not isinstance(hparams, Mapping):
        return
    found = dict(_walk(hparams, "hyperparameters"))
    for path, spec in found.items():
        if isinstance(spec, Mapping):
            yield from _find_untyped(path, spec)
            yield from _find_plain_ends(path, spec)
        inner = [place for place, _ in ranges_in_lists(spec, path)]
        for place in inner:
            yield (
                f"{place}: a range inside a list is part of a constant: every trial gets the "
                "range itself; give it a key of its own."
            )
        if searcher is not None and is_search and not inner:
            yield from _find_choices(path, spec, is_any=searcher.is_exhaustive)
    if searcher is not None and is_search and not any(map(is_range, found.values())):
        yield from _find_same_trials(searcher, document)


def _find_choices(path: str, spec: Any, *, is_any: bool) -> Iterator[str]:
    """Yield a notice if a constant looks like values to choose from: [32, 64] or "32, 64".

    Args:
        is_any: Whether any list gets a notice. Otherwise not one whose name is a plural (`betas`,
            `hidden_sizes`) or that of a value with several parts (`shape`).
    """
    name = path.rpartition(".")[2]
    if isinstance(spec, list) and spec and (is_any or not _NAMES_OF_LISTS.search(name)):
        what, entries = "a list is one value", format_value(spec)
    elif isinstance(spec, str) and _LISTED_NUMBERS.fullmatch(spec):
        what, entries = f"this is the text {spec!r}", f"[{spec.strip()}]"
    else:
        return
    yield (
        f"{path}: {what}, the same for every trial; to try each of its entries, write "
        f"{{type: categorical, vals: {entries}}}."
    )


def _walk(hparams: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield each hyperparameter with its path; a mapping with the keys of a range is one."""
    for name, spec in hparams.items():
        here = join(path, name)
        if is_nested(spec) and not _is_range(spec):
            yield from _walk(spec, here)
        else:
            yield here, spec


def _is_range(spec: Mapping[str, Any]) -> bool:
    """Return whether a mapping has the keys of a range, and no others."""
    keys = {key for key in spec if key != "type"}
    return ({"minval", "maxval"} <= keys or "vals" in keys) and keys <= _RANGE_KEYS


def _find_untyped(path: str, spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("type") is not None:
        return
    ends = [spec.get("minval"), spec.get("maxval")]
    if "vals" in spec:
        kind = "categorical"
    elif "base" in spec:
        kind = "log"
    else:
        kind = "int" if all(type(end) is int for end in ends) else "double"
    yield (
        f"{path}: without a type this is no range: every trial gets {format_value(dict(spec))} "
        f"itself; add type: {kind}."
    )


def _find_plain_ends(path: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice if `minval` and `maxval` of a log look like values, not exponents."""
    base, low, high = (as_number(spec.get(key)) for key in ("base", "minval", "maxval"))
    if spec.get("type") != "log" or base is None or low is None or high is None:
        return
    if base <= 1 or not (0 < low < 0.1 or 0 < low < high <= 1):
        return
    exponents = [round(math.log(end, base), 4) for end in (low, high)]
    yield (
        f"{path}: minval and maxval of a log are exponents: this is {base:g}^{low:g} = "
        f"{base**low:.4g} to {base:g}^{high:g} = {base**high:.4g}; for {low:g} to {high:g} write "
        f"minval: {exponents[0]:g}, maxval: {exponents[1]:g}."
    )


def _find_same_trials(
    searcher: type[SearcherSection], document: Mapping[str, Any]
) -> Iterator[str]:
    if searcher.is_exhaustive:
        yield (
            "hyperparameters: none is a range, so the grid has one trial; write ranges, such as "
            "{type: categorical, vals: [...]}."
        )
        return
    number = as_whole(look_up(document, "searcher.max_trials"))
    name = look_up(document, "searcher.name")
    if number != 1:
        trials = "all trials" if number is None else f"all {number} trials"
        yield (
            f"hyperparameters: none is a range, so {trials} of searcher {name} train with the "
            "same values and differ in their seeds only; write ranges, such as "
            "{type: double, minval: 0, maxval: 1}."
        )
