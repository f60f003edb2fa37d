"""Finds the experiments that match a user's query, and makes rows of them. Pure.

Only the fields in the query are read of all experiments, and rows are made only up to the limit.
So the time for a list of 50 does not depend on the contents of 10,000 others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate

from det_jupyter.contract.messages import (
    Alarm,
    ExperimentQuery,
    ExperimentRow,
    ExperimentRows,
    State,
    alarm_of,
)
from det_jupyter.contract.messages.status import STATUS_WORDS, experiment_status, with_alarm
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.entrypoints import entrypoint_text
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.views.experiment_views import TrialProgress, progress_of
from det_jupyter.master.views.leaving_gangs import leaving_of

_RUNNING, _QUEUED = "RUNNING", "QUEUED"
_SYNONYMS = {"FAILED": "ERROR", "CANCELLED": "CANCELED"}
_STOPPING = "STOPPING"
_WORDS = (_RUNNING, _QUEUED, _STOPPING, *(s for s in State if not s.startswith(_STOPPING)))

Test = Callable[[Experiment], bool]


def find_experiments(
    state: MachineState, indexes: Indexes, progress: TrialProgress, query: ExperimentQuery
) -> ExperimentRows:
    """Return the experiments that match a query.

    Raises:
        ConfigError: The query contains an unknown state.
    """
    tests = list(_tests(indexes, query))
    known = state.experiments
    candidates = (
        known.values() if query.ids is None else [known[i] for i in query.ids if i in known]
    )
    found = [each for each in candidates if all(test(each) for test in tests)]
    listed = [each for each in found if query.archived or not each.is_archived]
    listed.sort(key=lambda each: each.id, reverse=query.sort != "oldest")
    if query.sort == "metric":
        listed.sort(key=_metric_order)
    front = listed if query.limit is None else listed[: query.limit]
    return ExperimentRows(
        rows=[_row(state, indexes, progress, each) for each in front],
        num_more=len(listed) - len(front),
        num_archived=len(found) - len(listed),
        sources={each.id: each.source for each in front if each.source},
    )


def _tests(indexes: Indexes, query: ExperimentQuery) -> Iterator[Test]:
    """Yield the conditions of a query, the cheap ones first."""
    if (since := query.since) is not None:
        yield lambda each: each.created_at >= since
    if (until := query.until) is not None:
        yield lambda each: each.created_at < until
    if query.state:
        states = _parse_states(query.state)
        yield lambda each: bool(states & set(_states_of(each, indexes)))
    if query.label:
        yield lambda each: set(query.label) <= set(each.labels)
    if query.name:
        is_named = _matcher(query.name)
        yield lambda each: is_named(each.name)
    if query.notebook:
        is_notebook = _matcher(query.notebook, is_path=True)
        yield lambda each: is_notebook(each.notebook or "")
    if words := query.text.casefold().split():
        yield lambda each: _has_words(each, words)


def _matcher(pattern: str, *, is_path: bool = False) -> Callable[[str], bool]:
    """Return a function that matches a text with a shell pattern, ignoring case.

    Args:
        is_path: Whether the pattern may also match the end of a path.
    """
    begin = "(?:.*/)?" if is_path else ""
    literal = pattern.replace("[", "[[]")  # names such as "lr [0.1]" are not sets of characters
    compiled = re.compile(f"{begin}{translate(literal)}", re.IGNORECASE | re.DOTALL)
    return lambda text: compiled.match(text) is not None


def _has_words(experiment: Experiment, words: list[str]) -> bool:
    parts = [experiment.name, experiment.description, _entrypoint(experiment)]
    parts += [*experiment.labels, experiment.notebook or ""]
    text = "\n".join(parts).casefold()
    return all(word in text for word in words)


def _entrypoint(experiment: Experiment) -> str:
    return entrypoint_text(experiment.config.get("entrypoint") or "")


def _parse_states(states: list[str]) -> set[str]:
    parsed = {_SYNONYMS.get(word, word) for word in (text.upper() for text in states)}
    if unknown := parsed - {*_WORDS, *State}:
        known = ", ".join(word.lower() for word in _WORDS)
        raise ConfigError(
            [
                Problem("state", f"got {text.lower()!r}, expected {known}")
                for text in sorted(unknown)
            ]
        )
    return parsed


def _states_of(experiment: Experiment, indexes: Indexes) -> tuple[str, ...]:
    state = experiment.state
    if state is State.ACTIVE:
        is_running = any(trial.holds_slots for trial in indexes.unfinished_trials(experiment.id))
        return (state, _RUNNING if is_running else _QUEUED)
    return (state, _STOPPING) if state.startswith(_STOPPING) else (state,)


def _metric_order(experiment: Experiment) -> tuple[bool, str, float]:
    loss = experiment.direction.loss(experiment.best_metric)
    return experiment.best_metric is None, experiment.metric, loss


def _row(
    state: MachineState, indexes: Indexes, progress: TrialProgress, experiment: Experiment
) -> ExperimentRow:
    best = _best_trial(state, experiment)
    living = indexes.unfinished_trials(experiment.id)
    holding = [trial.allocation for trial in living if trial.holds_slots and trial.allocation]
    gangs = sorted({allocation.state for allocation in holding})
    status = experiment_status(experiment.state, gangs, len(experiment.trial_ids))
    alarm = _alarm(living, is_single=experiment.searcher_name == "single")
    leaving = (
        leaving_of(state, trial, progress.get(trial.id, (0, 0.0))[0])
        for trial in living
        if experiment.state is not State.ACTIVE or len(experiment.trial_ids) == 1
    )
    return ExperimentRow.built_from(
        experiment,
        name=experiment.name,
        leaving=next(filter(None, leaving), None),
        status=status,
        status_word=with_alarm(STATUS_WORDS[status], alarm.kind),
        progress=progress_of(state, experiment, progress, living),
        metric=experiment.metric,
        smaller_is_better=experiment.direction is Direction.MINIMIZE,
        hparams={} if best is None else best.hparams,
        num_trials=len(experiment.trial_ids),
        slots_per_trial=experiment.sizes,
        entrypoint=_entrypoint(experiment),
        labels=experiment.labels,
        description=experiment.description,
        num_slots=sum(len(allocation.slots) for allocation in holding),
        failure=_failure(state, experiment),
        alarm=alarm.sentence,
        alarm_kind=alarm.kind,
    )


def _alarm(living: Iterable[Trial], *, is_single: bool) -> Alarm:
    """Return the alarm of an experiment, for its first trial that does not train or has diverged.

    In a search a divergence is no alarm, as bad hyperparameters may cause it.
    """
    alarms = [
        alarm_of(
            trial.room if trial.state is State.ACTIVE else None,
            trial.allocation,
            trial.divergence,
        )
        for trial in living
    ]
    alarms.sort(key=lambda alarm: alarm.kind == "diverged")
    usable = (alarm for alarm in alarms if alarm.kind and (alarm.kind != "diverged" or is_single))
    return next(usable, Alarm("", ""))


def _failure(state: MachineState, experiment: Experiment) -> str:
    if experiment.state is not State.ERROR:
        return ""
    failures = (trial.failure for trial in state.trials_of(experiment))
    errors = (failure.error for failure in failures if failure is not None)
    return experiment.message or next(errors, "")


def _best_trial(state: MachineState, experiment: Experiment) -> Trial | None:
    """Return the trial with the best metric, or the first one if none has a metric."""
    trials = state.trials_of(experiment)
    best = (t for t in trials if t.best_metric is not None
            and t.best_metric == experiment.best_metric)  # fmt: skip
    return next(best, trials[0] if trials else None)
