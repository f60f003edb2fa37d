"""A simulated user who makes random requests while processes are killed.

Experiments are of two sorts. *Compared* ones are only paused, continued, renamed, moved in the
queue and given other priorities, which does not affect their training. All others may also be
killed, canceled, changed and deleted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import ChangeTrial, KillTrial
from det_jupyter.errors import ConfigError, Conflict, DetError, MasterUnreachable, NotFound
from tests.soak.trial import COMPARED, Kind, slots_of, submit

_PRIORITIES = (1, 20, 42, 60)
_URGENT = 1  # the most urgent priority that is used
_MOST_OTHERS = 4  # most other experiments at the same time: the slots have to suffice
_REFUSALS = (ConfigError, Conflict, NotFound)
# Requests, and their weights.
_TO_ALL = {"pause": 3, "activate": 5, "prioritize": 4, "move": 2, "limit": 1, "rename": 1}
_TO_OTHERS = {
    "submit": 6, "submit_urgent": 2, "kill": 1, "cancel": 1, "kill_trial": 1,
    "change_rate": 2, "change_search": 2, "delete": 2, "archive": 1, "resume": 1,
}  # fmt: skip


class User:
    """Makes requests at random.

    Args:
        client: Sends the requests.
        folder: The folder for the files of scripts.
        rng: Chooses the requests.

    Attributes:
        compared: The experiments whose results are compared.
        kinds: The kind of each experiment, by its number.
        actions: How many requests of each kind were carried out.
        problems: Answers that a user should never get.
    """

    def __init__(self, client: Client, folder: Path, rng: random.Random) -> None:
        self._client = client
        self._folder = folder
        self._rng = rng
        self._others: list[int] = []
        self.compared: list[int] = []
        self.kinds: dict[int, Kind] = {}
        self.actions: Counter[str] = Counter()
        self.problems: list[str] = []

    def submit(self, kind: Kind, **changes: Any) -> None:
        """Submit an experiment that is compared; the options are those of `trial.submit`."""
        self.compared.append(self._submit_kind(kind, **changes))

    def _submit_kind(self, kind: Kind, **changes: Any) -> int:
        number = submit(self._client, self._folder, kind, **changes).id
        self.kinds[number] = kind
        return number

    def begin_round(self) -> None:
        """Make no more requests about the experiments of earlier rounds."""
        self.compared, self._others = [], []

    def act(self) -> None:
        """Make a request, if there is an experiment for it; refusals are not problems."""
        names = _TO_ALL | _TO_OTHERS
        (name,) = self._rng.choices(list(names), list(names.values()))
        numbers = [*self._others, *(self.compared if name in _TO_ALL else [])]
        if not numbers and not name.startswith("submit"):
            return
        number = self._rng.choice(numbers) if numbers else 0
        try:
            act: Callable[[Experiment], object] = getattr(self, f"_{name}")
            act(Experiment(self._client, number))
        except _REFUSALS:
            return
        except MasterUnreachable:
            return  # it is being killed, or is frozen
        except DetError as error:
            self.problems.append(f"{name} of experiment {number}: {error}")
            return
        self.actions[name] += 1

    def _submit(self, _: Experiment) -> None:
        if len(self._others) < _MOST_OTHERS:
            kind: Kind = self._rng.choice([*COMPARED, "halving", "halving"])
            self._submit_other(kind, slots_of(kind), self._rng.choice(_PRIORITIES))

    def _submit_urgent(self, _: Experiment) -> None:
        """Submit an urgent experiment that preempts others, as it needs most of the slots."""
        if len(self._others) < _MOST_OTHERS:
            self._submit_other("class", 4, _URGENT)

    def _submit_other(self, kind: Kind, slots: int | dict[str, int], priority: int) -> None:
        resources = {"slots_per_trial": slots, "priority": priority}
        number = self._submit_kind(kind, pause_s=0.03, resources=resources)
        self._others.append(number)

    def _pause(self, experiment: Experiment) -> None:
        experiment.pause()

    def _activate(self, experiment: Experiment) -> None:
        experiment.activate()

    def _prioritize(self, experiment: Experiment) -> None:
        experiment.set_priority(self._rng.choice(_PRIORITIES))

    def _move(self, experiment: Experiment) -> None:
        numbers = {*self._others, *self.compared} - {experiment.id}
        if numbers:
            experiment.move_ahead_of(self._rng.choice(sorted(numbers)))

    def _limit(self, experiment: Experiment) -> None:
        experiment.set_max_slots(self._rng.choice([2, 4, None]))

    def _rename(self, experiment: Experiment) -> None:
        experiment.set_name(f"soak: renamed {self._rng.randrange(100)}")

    def _kill(self, experiment: Experiment) -> None:
        experiment.kill()

    def _cancel(self, experiment: Experiment) -> None:
        experiment.cancel()

    def _trial_of(self, experiment: Experiment) -> int:
        trials = experiment.view.trials
        if not trials:
            raise NotFound("it has no trial yet")
        return self._rng.choice(trials).id

    def _kill_trial(self, experiment: Experiment) -> None:
        self._client.change(KillTrial(trial_id=self._trial_of(experiment)))

    def _change_rate(self, experiment: Experiment) -> None:
        self._client.change(ChangeTrial(trial_id=self._trial_of(experiment), lr_factor=0.5))

    def _change_search(self, experiment: Experiment) -> None:
        experiment.change_search(max_trials=7, max_concurrent_trials=self._rng.choice([1, 2, 4]))

    def _delete(self, experiment: Experiment) -> None:
        experiment.delete()
        self._others.remove(experiment.id)

    def _archive(self, experiment: Experiment) -> None:
        experiment.archive()

    def _resume(self, experiment: Experiment) -> None:
        experiment.continue_()
