"""Rounds of experiments with faults, each compared with a run that nothing disturbed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from det_jupyter.client import Experiment
from det_jupyter.errors import DetError
from tests.processes import DetHome
from tests.soak.checks import Outcome, damage_of, outcome_of, problems_with
from tests.soak.faults import Fault, inject
from tests.trials import TRIAL_SOURCE, slow, small_config, submit

T = TypeVar("T")

RESTARTS = 1000  # none of the faults is the trial's, but the master cannot know that
ENDED_S = 180.0  # after the last fault
_SETTLED_S = 10.0
_PATIENCE_S = 60.0  # for a master to be there again


@dataclass(slots=True)
class Report:
    """What a soak has done and found."""

    faults: Counter[Fault] = field(default_factory=Counter)
    experiments: int = 0
    problems: list[str] = field(default_factory=list)


class Soak:
    """A private det_jupyter under faults.

    Args:
        home: It.
        rng: Chooses among the processes of a role.
        source: The trial.
    """

    def __init__(self, home: DetHome, rng: random.Random, source: str = TRIAL_SOURCE) -> None:
        self._source = source
        self.report = Report()
        self._home = home
        self._rng = rng
        self._client = home.client()
        self._expected: Outcome | None = None

    @property
    def database(self) -> Path:
        """The master's database."""
        return self._home.path / "data" / "det.sqlite3"

    def run_undisturbed(self) -> None:
        """Run the trial in peace: what all others are compared with."""
        experiment = self._submit(small_config())
        experiment.wait(ENDED_S)
        self.compare_with(experiment)

    def compare_with(self, experiment: Experiment) -> None:
        """Compare all others with this one, which was run in peace."""
        self._expected = outcome_of(experiment, self.database)

    def run_round(self, faults: Iterable[Fault], *, experiments: int, pause_s: float) -> None:
        """Run experiments, with faults while they do, and check what they come to.

        Args:
            faults: In this order; one for which there is no process is waited for, for a while.
            experiments: How many.
            pause_s: How long a batch takes, at least.
        """
        assert self._expected is not None
        config = slow(pause_s, max_restarts=RESTARTS)
        running = [self._patiently(lambda: self._submit(config)) for _ in range(experiments)]
        for fault in faults:
            if all(self._is_over(experiment) for experiment in running):
                break
            self._inject(fault)
            time.sleep(self._rng.uniform(0.1, 1.0))
        deadline = time.monotonic() + ENDED_S
        while time.monotonic() < deadline and not all(map(self._is_over, running)):
            time.sleep(0.1)
        self.report.experiments += experiments
        for experiment in running:
            told = self._problems_with(experiment)
            self.report.problems += [f"experiment {experiment.id}: {line}" for line in told]

    def _problems_with(self, experiment: Experiment) -> list[str]:
        """Return what is wrong with it, and stays so: checkpoints may still be being deleted."""
        assert self._expected is not None
        expected, deadline = self._expected, time.monotonic() + _SETTLED_S
        while True:
            told = self._patiently(lambda: problems_with(experiment, self.database, expected))
            if not told or time.monotonic() > deadline:
                return told
            time.sleep(0.5)

    def finish(self) -> Report:
        """Check what is left, and return the report."""
        self.report.problems += damage_of(self.database)
        self._client.session.close()
        return self.report

    def _submit(self, config: dict[str, Any]) -> Experiment:
        return submit(self._client, config, self._source)

    def _inject(self, fault: Fault) -> None:
        deadline = time.monotonic() + 2.0
        while not inject(self._home.path, fault, self._rng):
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        self.report.faults[fault] += 1

    def _is_over(self, experiment: Experiment) -> bool:
        return self._patiently(lambda: experiment.state.is_terminal)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Return the answer, from the next master if the present one has been killed."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except DetError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
