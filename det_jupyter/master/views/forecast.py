"""Predicts what a search would train and how long that takes, from earlier trials. Pure.

    points of a trial   (time, amount of training) at its validations, or at its reports of metrics
    pace                seconds per unit between neighbouring points

Between two points a trial may have rested, waited or been restarted, which is not training: pairs
whose pace is more than `_PAUSE` times the median are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.messages import (
    Pace,
    PlannedBracket,
    PlannedRange,
    PlannedTrials,
    PreviewView,
)
from det_jupyter.contract.values.entrypoints import entrypoint_text
from det_jupyter.contract.values.json_numbers import to_number
from det_jupyter.contract.values.text import hparam_text
from det_jupyter.master.machine.model.state import Agent
from det_jupyter.searcher.planning import Ends
from det_jupyter.searcher.preview import Preview, Range

MAX_AUX = 100  # trials without slots on an agent, unless the pool has another limit
_PAUSE = 3.0
Records = Iterable[tuple[int, Mapping[str, Any]]]  # trial, metrics record as JSON
Point = tuple[float, float]


def measured_pace(records: Records, unit: str) -> float | None:
    """Return the seconds that one unit of training took; None if the records do not show it.

    Args:
        records: Trial and record, in the order in which they were written.
        unit: batches, records, epochs, or the name of a metric that validations report.
    """
    points: dict[tuple[int, str], list[Point]] = {}
    for trial_id, record in records:
        amount = _amount(record, unit)
        if amount is not None:
            points.setdefault((trial_id, record["kind"]), []).append((record["at"], amount))
    for kind in ("metrics", "batch_metrics"):  # first the pace that includes validations
        of_kind = [found for key, found in points.items() if key[1] == kind]
        if (pace := _pace(of_kind)) is not None:
            return pace
    return None


def _amount(record: Mapping[str, Any], unit: str) -> float | None:
    if record["kind"] == "batch_metrics":
        lengths = [len(values) for values in record["values"].values()]
        return record["first"] + max(lengths, default=1) - 1 if unit == "batches" else None
    if record["group"] != "validation":
        return None
    trained: Mapping[str, Any] = record.get("trained") or {}
    known = {"batches": record["steps_completed"]} | record["metrics"] | trained
    return to_number(known.get(unit))


def _pace(trials: Iterable[list[Point]]) -> float | None:
    pairs = [
        (later[0] - earlier[0], later[1] - earlier[1])
        for points in trials
        for earlier, later in pairwise(points)
        if later[0] > earlier[0] and later[1] > earlier[1]
    ]
    if not pairs:
        return None
    middle = median(seconds / amount for seconds, amount in pairs)
    kept = [(s, amount) for s, amount in pairs if s / amount <= _PAUSE * middle]
    return sum(s for s, _ in kept) / sum(amount for _, amount in kept)


def batches_per_epoch(records: Records) -> float | None:
    """Return the batches per epoch from the last validation that contains them."""
    for _, record in reversed(list(records)):
        trained: Mapping[str, Any] = record.get("trained") or {}
        if trained.get("epochs") and trained.get("batches"):
            return float(trained["batches"] / trained["epochs"])
    return None


def places_for(slots_per_trial: int, agents: Iterable[Agent]) -> tuple[int, int]:
    """Return the number of slots, and how many trials of this size fit into them at once."""
    sizes = [len(agent.slots) for agent in agents if not agent.is_away]
    if slots_per_trial == 0:
        return sum(sizes), MAX_AUX * len(sizes)
    on_one_agent = sum(size // slots_per_trial for size in sizes)
    return sum(sizes), on_one_agent or sum(sizes) // slots_per_trial


class PaceFinder:
    """Finds how long one unit of training takes, or computes it from given `seconds_per_batch`."""

    def __init__(
        self, config: ExperimentConfig, unit: str, seconds_per_batch: float | None
    ) -> None:
        self._entrypoint = entrypoint_text(config.entrypoint)
        self._unit = unit
        self._seconds_per_batch = seconds_per_batch
        self.pace: Pace | None = None
        if seconds_per_batch is not None:
            batches = _batches_per_unit(config, unit)
            self._take(None if batches is None else batches * seconds_per_batch, "as given")

    def search(self, experiment_id: int, records: Records) -> None:
        """Set the pace if the records of this earlier experiment show it."""
        records = list(records)
        where = f"experiment {experiment_id}"
        if self._seconds_per_batch is None:
            self._take(measured_pace(records, self._unit), f"measured in {where}")
        elif self._unit == "epochs" and (batches := batches_per_epoch(records)) is not None:
            seconds = self._seconds_per_batch * batches
            self._take(seconds, f"as given, with {batches:g} batches an epoch as in {where}")

    def _take(self, seconds_per_unit: float | None, source: str) -> None:
        if seconds_per_unit is not None:
            self.pace = Pace(unit=self._unit, seconds_per_unit=seconds_per_unit, source=source)

    @property
    def why_none(self) -> str:
        """Why there is no pace, and how the user can give one."""
        if self._seconds_per_batch is None:
            return f"no trial of {self._entrypoint} has trained here yet; give --seconds-per-batch"
        if self._unit in ("epochs", "records"):
            return (
                f"the number of batches in the {self._unit} is not known; give records_per_epoch "
                "and a constant hyperparameters.global_batch_size"
            )
        return f"the number of batches in the {self._unit} is not known"


def _batches_per_unit(config: ExperimentConfig, unit: str) -> float | None:
    if unit == "batches":
        return 1.0
    size = config.hyperparameters.get("global_batch_size")
    if isinstance(size, Mapping):
        size = size.get("val")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return None
    if unit == "records":
        return 1 / size
    if unit == "epochs" and config.records_per_epoch:
        return config.records_per_epoch / size
    return None


def preview_view(
    planned: Preview,
    ranges: list[Range],
    notices: list[str],
    finder: PaceFinder,
    *,
    slots: int,
    places: int,
) -> PreviewView:
    """Return the preview of a search as a view, with its duration if there is a pace.

    Args:
        slots: Number of slots.
        places: Number of trials that fit into them at once.
    """
    concurrent = min(places, planned.max_concurrent_trials)
    pace, no_pace, least, expected = finder.pace, "", None, None
    if pace is None:
        no_pace = finder.why_none
    elif concurrent == 0:
        why = "a trial needs more slots than any computer here has"
        pace, no_pace = None, why if slots else "no computer is connected now"
    else:
        least, expected = planned.seconds(pace.seconds_per_unit, concurrent)
    return PreviewView(
        searcher=planned.searcher,
        metric=planned.metric,
        unit=planned.unit,
        num_trials=planned.num_trials,
        trials=_ends(planned.trials, planned.unit),
        brackets=[
            PlannedBracket(
                trials=_ends(bracket.trials, planned.unit),
                max_concurrent_trials=bracket.max_concurrent_trials,
            )
            for bracket in planned.brackets
        ],
        expected=planned.expected,
        least=planned.least,
        most=planned.most,
        full=planned.full,
        ranges=[
            PlannedRange(
                name=each.name, range=each.words, samples=[hparam_text(s) for s in each.samples]
            )
            for each in ranges
        ],
        notices=notices,
        slots=slots,
        concurrent=concurrent,
        pace=pace,
        no_pace=no_pace,
        least_seconds=least,
        seconds=expected,
    )


def _ends(trials: Ends, unit: str) -> list[PlannedTrials]:
    return [PlannedTrials(length={unit: at}, num_trials=number) for at, number in trials.items()]
