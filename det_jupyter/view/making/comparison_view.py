"""Makes the comparison of several experiments, or of trials of one search. Pure.

A search is represented by its best trial, whose curves and hyperparameters are compared. Only
differences are listed. Curves of one metric of one group share a chart.

Code is compared by module path. Cells get new numbers each time they are executed, so a cell is
compared with the one that defines the same names or has the most lines in common.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from typing import Any

from det_jupyter.contract.values.text import clock, count, listed
from det_jupyter.view.making.charts import (
    NUM_LOOKS,
    Timelines,
    names_by_group,
    series_of,
    without_averages,
)
from det_jupyter.view.making.experiment_facts import (
    status_of,
    status_word,
    steps_per_epoch,
    trial_status,
)
from det_jupyter.view.making.results import Compared, result_facts, value_text
from det_jupyter.view.making.search_charts import by_title
from det_jupyter.view.making.space import leaves
from det_jupyter.view.model.comparison import (
    CodeDifference,
    ComparisonState,
    Fact,
    FactTable,
    Side,
)
from det_jupyter.view.model.status_looks import ENDED, STATUS_WORDS
from det_jupyter.view.model.trial_state import Chart

MAX_SIDES = NUM_LOOKS  # curves of more experiments could not be distinguished
MAX_CHARTS = 6
MAX_NAMED = 3  # names in a sentence
# Points of a chart, all sides together; smoothing differs visibly between downsampled curves.
MAX_POINTS = 2400
MAX_CODE = 100_000  # characters: Jupyter drops messages above 1 MB a second
_MIN_SIMILARITY = 0.4  # least similarity of two versions of one cell
# Weight of common names in the similarity of two cells; common lines have weight 1.
_NAMES_WEIGHT = 1.0
_RANGES = ("int", "double", "log", "categorical")


def build_comparison(
    compared: Sequence[Compared], now: float, notes: Sequence[str] = ()
) -> ComparisonState:
    """Return the comparison; the given `notes` precede its own notes."""
    sides = [_side(each, look) for look, each in enumerate(compared)]
    charts, more = _charts(compared, sides)
    code = _fitting(code_differences(compared))
    of_trials = compared[0].is_trial
    what = "trials of one search" if of_trials else "experiments"
    words = [side["status_word"].lower() for side in sides]
    states = Fact(name="state", values=words, best=[])
    tables = [
        FactTable(title="Results", facts=[states, *result_facts(compared, now)], empty=""),
        _table("Hyperparameters", hyperparameters(compared), "All hyperparameters are equal."),
    ]
    if not of_trials:
        rest = "The rest of the configuration is equal."
        tables.append(_table("Configuration", configuration(compared), rest))
        tables.append(_table("Versions", versions(compared), "All versions are equal."))
    return ComparisonState(
        title=_title(compared),
        as_of=now,
        sides=sides,
        notes=[*notes, *_notes(compared, charts), *_active_note(sides, now)],
        charts=charts,
        more_metrics=more,
        no_metrics="" if charts else "No metrics were reported.",
        tables=tables,
        code=code,
        no_code="" if code else f"The code of these {what} is the same.",
    )


def hyperparameters(compared: Sequence[Compared]) -> dict[str, list[Any]]:
    """Return the hyperparameters whose values differ, by dotted key."""
    return differing([{} if one.trial is None else one.trial.hparams for one in compared])


def configuration(compared: Sequence[Compared]) -> dict[str, list[Any]]:
    """Return the other entries of the configurations whose values differ, by dotted key."""
    rows = differing([one.experiment.config for one in compared])
    return {key: row for key, row in rows.items() if not _is_hyperparameter_value(key, row)}


def _is_hyperparameter_value(key: str, row: Sequence[Any]) -> bool:
    """Return whether a row contains values of a hyperparameter; False for ranges of a search."""
    has_range = any(isinstance(v, Mapping) and v.get("type") in _RANGES for v in row)
    return key.startswith("hyperparameters.") and not has_range


def versions(compared: Sequence[Compared]) -> dict[str, list[Any]]:
    """Return the versions of Python, torch and packages that differ, and the interpreters."""
    return differing(
        [{"interpreter": o.experiment.python, **o.experiment.capsule.packages} for o in compared]
    )


def _title(compared: Sequence[Compared]) -> str:
    numbers = listed(one.id for one in compared)
    if compared[0].is_trial:
        return f"Trials {numbers} of experiment {compared[0].experiment.id}"
    return f"Experiments {numbers}"


def _side(one: Compared, look: int) -> Side:
    if one.is_trial and one.trial is not None:
        status = trial_status(one.trial, one.experiment.state)
        word = status_word(one.trial, status)
    else:
        status = status_of(one.experiment)
        word = STATUS_WORDS[status]
    return Side(
        id=one.id,
        label=one.label,
        note=_representative(one),
        look=look % NUM_LOOKS,
        status=status,
        status_word=word,
    )


def _representative(one: Compared) -> str:
    if one.is_trial or one.trial is None or len(one.experiment.trials) < 2:
        return ""
    return f"trial {one.trial.id}, the best of {len(one.experiment.trials)}"


def _charts(compared: Sequence[Compared], sides: Sequence[Side]) -> tuple[list[Chart], list[str]]:
    curves = [
        curve.model_copy(update={"trial_id": one.id})
        for one in compared
        for curve in without_averages(one.curves)
    ]
    epochs = {
        one.id: known[one.trial.id]
        for one in compared
        if one.trial is not None and one.trial.id in (known := steps_per_epoch(one.experiment))
    }
    timelines = Timelines(curves, epochs)
    charts = by_title(curves, names_by_group(curves), compared[0].experiment.metric)
    by_id = {side["id"]: side for side in sides}
    titles = list(charts)
    return [
        Chart(
            title=title,
            series=[
                series_of(
                    curve,
                    label=by_id[curve.trial_id]["label"],
                    look=by_id[curve.trial_id]["look"],
                    limit=MAX_POINTS // len(compared),
                    timelines=timelines,
                )
                for curve in charts[title]
            ],
            hidden=0,
        )
        for title in titles[:MAX_CHARTS]
    ], titles[MAX_CHARTS:]


def _notes(compared: Sequence[Compared], charts: Sequence[Chart]) -> list[str]:
    """Return sentences on chosen trials, changes while training, other metrics, missing curves."""
    notes = [
        f"Experiment {one.experiment.id} is compared by {trial}."
        for one in compared
        if (trial := _representative(one))
    ]
    notes += [
        f"{one.label} was changed: {'; '.join(changes)}."
        for one in compared
        if one.trial and (changes := [c.sentence for c in one.trial.changes if c.sentence])
    ]
    metrics = list(dict.fromkeys(one.experiment.metric for one in compared))
    if len(metrics) > 1:
        by = {m: [str(o.id) for o in compared if o.experiment.metric == m] for m in metrics}
        parts = ", ".join(f"{metric} ({', '.join(ids)})" for metric, ids in by.items())
        notes.append(
            f"The searchers' metrics differ: {parts}. Each has its own line under Results; "
            "the curves show every metric of those that reported it."
        )
    drawn = {series["trial_id"] for chart in charts for series in chart["series"]}
    without_metrics = [one.label for one in compared if one.id not in drawn]
    if without_metrics and charts:
        notes.append(f"No metrics were reported by {', '.join(without_metrics)}.")
    return notes


def _active_note(sides: Sequence[Side], now: float) -> list[str]:
    """Return a sentence that names the sides that still run: a comparison is not updated."""
    active = [side["label"] for side in sides if side["status"] not in ENDED]
    if not active:
        return []
    verb = "has" if len(active) == 1 else "have"
    named = ", ".join(active) if len(active) <= MAX_NAMED else f"{len(active)} of {len(sides)}"
    return [f"As of {clock(now)}: {named} {verb} not ended."]


def _table(title: str, rows: Mapping[str, Sequence[Any]], empty: str) -> FactTable:
    facts = [
        Fact(name=name, values=[value_text(value) for value in values], best=[])
        for name, values in rows.items()
    ]
    return FactTable(title=title, facts=facts, empty=empty)


def code_differences(compared: Sequence[Compared]) -> list[CodeDifference]:
    """Return the differences between the first side's code and the code of each other side."""
    return [
        CodeDifference(name=name, side=place, lines=lines)
        for place, one in enumerate(compared[1:], start=1)
        for name, lines in source_differences(compared[0].code, one.code)
    ]


def _fitting(differences: Sequence[CodeDifference]) -> list[CodeDifference]:
    """Return the differences, cut to `MAX_CODE` characters in total."""
    fitting, room = [], MAX_CODE
    for one in differences:
        lines = []
        for line in one["lines"]:
            room -= len(line) + 1
            if room < 0:
                break
            lines.append(line)
        if more := len(one["lines"]) - len(lines):
            lines.append(f"… {count(more, 'more line')}: code_diff() has all")
        fitting.append(CodeDifference(name=one["name"], side=one["side"], lines=lines))
    return fitting


def left_out(num_given: int) -> str:
    """Return a sentence if more than `MAX_SIDES` sides were given; else ""."""
    if num_given <= MAX_SIDES:
        return ""
    return f"The best {MAX_SIDES} of {count(num_given, 'trial')} are compared."


def differing(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values that differ, by dotted key: a value per document, None if it has none.

    >>> differing([{"optimizer": {"lr": 0.1}, "depth": 2}, {"optimizer": {"lr": 0.2}, "depth": 2}])
    {'optimizer.lr': [0.1, 0.2]}
    """
    flat = [{".".join(path): value for path, value in leaves(each)} for each in documents]
    keys = dict.fromkeys(key for each in flat for key in each)
    rows = {key: [each.get(key) for each in flat] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def source_differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield name and diff of each cell and module: changed ones, removed ones, then added ones.

    A cell with two names, an old and a new one, is named by both.
    """
    olds = {name: text for name, text in before.items() if text != after.get(name)}
    news = {name: text for name, text in after.items() if text != before.get(name)}
    for old, new in _pairs(olds, news):
        names = old or "/dev/null", new or "/dev/null"
        texts = olds.get(old, "").splitlines(), news.get(new, "").splitlines()
        if lines := list(unified_diff(*texts, *names, lineterm="")):
            yield " → ".join(dict.fromkeys(filter(None, (old, new)))), lines


def _pairs(olds: dict[str, str], news: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of old and new names; a name is "" if it has no counterpart."""
    found = {name: name for name in olds if name in news and not _is_cell(name)}
    for old, new in _similar_cells(olds, news):
        if old not in found and new not in found.values():
            found[old] = new
    yield from ((old, found[old]) for old in olds if old in found)
    yield from ((old, "") for old in olds if old not in found)
    yield from (("", new) for new in news if new not in found.values())


def _similar_cells(olds: dict[str, str], news: dict[str, str]) -> list[tuple[str, str]]:
    """Return pairs of cells that are probably versions of one cell, the most alike first."""
    names = {text: _defined(text) for text in (*olds.values(), *news.values())}
    scored = [
        (_similarity(olds[old], news[new], names), old, new)
        for old in filter(_is_cell, olds)
        for new in filter(_is_cell, news)
    ]
    scored.sort(key=lambda each: -each[0])
    return [(old, new) for score, old, new in scored if score >= _MIN_SIMILARITY]


def _similarity(old: str, new: str, names: Mapping[str, frozenset[str]]) -> float:
    if old == new:
        return 2 + _NAMES_WEIGHT
    lines = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False).ratio()
    union = names[old] | names[new]
    shared = len(names[old] & names[new]) / len(union) if union else 0.0
    return lines + _NAMES_WEIGHT * shared


def _defined(source: str) -> frozenset[str]:
    """Return the names that a cell binds at its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):  # a cell with magics, for example
        return frozenset()
    made = [n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    return frozenset([*made, *(target.id for target in targets if isinstance(target, ast.Name))])


def _is_cell(name: str) -> bool:
    return name.startswith("Cell ")
