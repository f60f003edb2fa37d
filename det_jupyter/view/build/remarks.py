"""Finds the remarks on trials of a search: failures, making room, missing metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from det_jupyter.contract.messages import BracketView, ExperimentView
from det_jupyter.contract.values.text import length, one_line
from det_jupyter.view.build.facts import makes_room_for, metric_of
from det_jupyter.view.model.search import Remark, Row

MAX_NAMED = 5  # trials of one remark


def find_remarks(experiment: ExperimentView, rows: Sequence[Row]) -> list[Remark]:
    """Return the remarks, failures first; trials with the same remark share one."""
    metric = metric_of(experiment)
    brackets = experiment.search.brackets if experiment.search is not None else []
    said: dict[tuple[int, str], list[int]] = {}  # trials, by a sentence and its place
    for trial, row in zip(experiment.trials, rows, strict=True):
        why = trial.failure.error if trial.failure is not None else str(trial.divergence or "")
        if row["status"] == "error" and why:
            sentence = f"failed: {one_line(why)}"
            said.setdefault((0, sentence), []).append(trial.id)
        elif (taker := makes_room_for(trial)) is not None:
            sentence = f"must make room for experiment {taker}"
            said.setdefault((1, sentence), []).append(trial.id)
        elif row["status"] not in ("error", "canceled"):
            for where in _places_without_metric(row, brackets):
                sentence = f"reported no {metric}{where}: counted as the worst"
                said.setdefault((2, sentence), []).append(trial.id)
    return [
        _remark(sentence, said[place, sentence], is_failure=place == 0)
        for place, sentence in sorted(said, key=lambda key: key[0])
    ]


def _remark(sentence: str, trial_ids: list[int], *, is_failure: bool) -> Remark:
    named = trial_ids[:MAX_NAMED]
    names = ", ".join(map(str, named))
    if len(trial_ids) > len(named):
        names = f"{names} and {len(trial_ids) - len(named)} more"
    who = f"trials {names}" if len(trial_ids) > 1 else f"trial {names}"
    return Remark(trial_ids=named, is_failure=is_failure, text=f"{who} {sentence}")


def _places_without_metric(row: Row, brackets: Sequence[BracketView]) -> Iterator[str]:
    if row["bracket"] is None:
        if row["status"] == "completed" and row["best"] is None:
            yield ""
        return
    for metric, rung in zip(row["rungs"], brackets[row["bracket"]].rungs, strict=False):
        if metric is None:
            yield f" at {length(rung.length)}"
