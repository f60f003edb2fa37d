"""Rounds of experiments under faults and with a random user, each judged when all are over.

A round:    experiments of several kinds are submitted, each with a client that waits for it
            faults, and requests of the user at the same time
            paused experiments are continued; all experiments have to end, without standing still
judged:     compared experiments against an undisturbed one (judge.differences)
            all others: they have ended as COMPLETED or CANCELED (an ERROR would not be the
            trial's fault), and are consistent (judge.inconsistencies)
            answers of masters agree with the events, also while experiments trained
            no trial holds a slot, all slots are there, waiting clients have ended, and a page
            that is opened shows what the master stores
at the end: all experiments are deleted, and all processes are stopped: nothing is left

A trial whose runs were lost MAX_LOSSES times before it trained is given up, as intended. So in a
round fewer faults than that kill agents or fork servers, and no trial may be given up.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from websocket import WebSocketException

from det_jupyter.agent.devices.offered_slots import AGENTS_VARIABLE
from det_jupyter.client import Experiment
from det_jupyter.contract.messages import ExperimentRow, State, TrialView
from det_jupyter.errors import Conflict, DetError, NotFound
from det_jupyter.master.machine.rules.outcome import MAX_LOSSES
from tests.processes import DetHome, processes_below
from tests.soak.collected import (
    StoredExperiment,
    StoredHome,
    last_news,
    read_experiment,
    read_home,
)
from tests.soak.faults import Cell, Fault, Faults, draw
from tests.soak.judge import CHECKPOINTS, differences, inconsistencies, leftovers
from tests.soak.restored import wrong_sightings
from tests.soak.shown import Sighting, ask, keep, look
from tests.soak.surroundings import Elsewhere, Onlooker, Server, Waiting
from tests.soak.tables import damages
from tests.soak.trial import COMPARED, Kind, submit
from tests.soak.user import User

T = TypeVar("T")

_STILL_S = 180.0  # longest time without news of experiments that are not over
_ENDED_S = 1800.0  # longest time from the last fault to the end of all experiments
AGENTS = {"left": 2, "right": 2}  # slots of the simulated agents
ELSEWHERE = {"far": 2}  # slots of agents with homes of their own, which connect over TLS
# Roles at whose end runs are lost.
_LOSE_RUNS = ("agent", "agent elsewhere", "lease watch", "fork server")
# The environment variable with which an agent process simulates these agents.
SIMULATED = {AGENTS_VARIABLE: " ".join(f"{name}=cpu:{num}" for name, num in AGENTS.items())}
_PREEMPTING = [{"pool_name": "default", "scheduler": {"type": "priority", "preemption": True}}]
_SETTLED_S = 60.0
_DELETED_S = 1.0  # time to delete an experiment while others are deleted
_ABSENT_S = 0.05  # pause after a fault without a process to hit
_LOOKED_AT = 4  # experiments that are looked at each half second
_PATIENCE_S = 300.0  # time for a master, or for all agents, to be back


@dataclass(slots=True)
class Report:
    """The actions and results of a soak."""

    faults: Counter[Fault] = field(default_factory=Counter)
    hits: Counter[Cell] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    experiments: int = 0  # number of judged experiments
    sightings: int = 0  # number of masters' answers, also about experiments that were not over
    problems: list[str] = field(default_factory=list)


class Soak:
    """A private det_jupyter under faults.

    Args:
        home: The private det_jupyter, with AGENTS.
        temporary: The folder of its temporary files.
        seed: Determines the faults, the processes that they hit, and the user's requests.
        elsewhere: Numbers of slots of agents on simulated other computers, by name.
    """

    def __init__(
        self, home: DetHome, temporary: Path, seed: int, elsewhere: Mapping[str, int] | None = None
    ) -> None:
        self.report = Report()
        self._home = home
        self._temporary = temporary
        self._folder = home.path / "soak"
        self._folder.mkdir()
        self._rng = random.Random(f"{seed} times")
        self._drawing = random.Random(f"{seed} faults")
        self._client = home.client()
        self._acting = home.client()  # the client of the thread that makes requests
        self._user = User(self._acting, self._folder, random.Random(f"{seed} user"))
        self._faults = Faults(home.path, self._user.kinds, random.Random(f"{seed} targets"))
        self._server = Server(self._folder)
        self._slots = AGENTS | dict(elsewhere or {})
        self._elsewhere = Elsewhere(self._client, self._folder, elsewhere or {})
        self._expected: dict[Kind, StoredExperiment] = {}
        self._judged: set[int] = set()
        self._sightings: list[Sighting] = []

    @property
    def _data(self) -> Path:
        return self._home.path / "data"

    def run_undisturbed(self, kinds: Iterable[Kind] = COMPARED) -> None:
        """Run an undisturbed experiment of each kind, with which all others are compared."""
        self._elsewhere.start()
        self._until(lambda: len(self._client.agents()) == len(self._slots), _PATIENCE_S)
        self._client.session.put("/pools", {"pools": _PREEMPTING})
        for kind in kinds:
            self._run_undisturbed(kind)
        self._note_lasting(self._damages)

    def _run_undisturbed(self, kind: Kind) -> None:
        experiment = submit(self._client, self._folder, kind)
        self._until_over(lambda: experiment.view.state.is_terminal)
        self._expected[kind] = self._read(experiment.id)
        self._judged.add(experiment.id)
        self.report.problems += differences(self._expected[kind], self._expected[kind])

    @property
    def expected(self) -> dict[Kind, StoredExperiment]:
        """The undisturbed experiments."""
        return self._expected

    def drawn(self, num: int) -> Iterator[Fault]:
        """Yield random faults until `num` of them have hit a process."""
        losing, before = 0, self.report.faults.total()
        while (hit := self.report.faults.total() - before) < num:
            excluded = _LOSE_RUNS if losing == MAX_LOSSES - 1 else ()
            fault = draw(self._drawing, self.report.hits, excluded)
            yield fault
            losing += fault.role in _LOSE_RUNS and self.report.faults.total() - before > hit

    def run_round(
        self,
        faults: Iterable[Fault],
        kinds: Iterable[Kind],
        pause_s: float,
        patience_s: float = 0.0,
    ) -> None:
        """Run experiments, carry out faults meanwhile, and judge the experiments.

        Args:
            faults: The faults, in order.
            kinds: The kinds of the compared experiments.
            pause_s: Least seconds per batch of these experiments.
            patience_s: Longest wait for a process that a fault can hit, while they train.
        """
        self._server.keep()
        onlooker, waiting = Onlooker(self._server), Waiting(self._folder)
        self._user.begin_round()
        for kind in kinds:
            self._patiently(lambda: self._user.submit(kind, pause_s=pause_s))  # noqa: B023
        for number in self._user.compared:
            waiting.start(number)
        over = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            acting = threads.submit(self._act, over)
            try:
                for fault in faults:
                    was_hit = self._inject(fault, over, patience_s)
                    if over.wait(self._rng.uniform(0.1, 0.8) if was_hit else _ABSENT_S):
                        break
            finally:
                over.set()
            acting.result()
        self._faults.wait()
        self._end_round()
        self._note(waiting.problems())
        onlooker.stop()
        self._note_lasting(self._page_problems)

    def _act(self, over: threading.Event) -> None:
        """Make requests, and restart ended surroundings, until all compared experiments are over.

        Args:
            over: Set when they are over, and by the caller to end this.
        """
        rng = random.Random(self._rng.random())
        while not over.wait(rng.uniform(0.1, 0.8)):
            self._user.act()
            self._server.start()
            self._elsewhere.start()
            with suppress(DetError):  # no master answers at the moment
                views = {view.id: view for view in self._acting.experiments()}
                if all(views[number].state.is_terminal for number in self._user.compared):
                    over.set()
                for number in rng.sample(list(views), min(_LOOKED_AT, len(views))):
                    if (sighting := look(self._acting, self._data, number)) is not None:
                        self._sightings.append(sighting)

    def _inject(self, fault: Fault, over: threading.Event, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while (hit := self._faults.inject(fault)) is None:
            if over.wait(0.02) or time.monotonic() > deadline:
                return False
        self.report.faults[fault] += 1
        self.report.hits[hit.role, hit.kind, hit.signal] += 1
        return True

    def _end_round(self) -> None:
        """Wait until all experiments have ended, and judge them."""
        if not self._until_over(self._are_all_over):
            for view in self._experiments():
                if not view.state.is_terminal:
                    trials = self._patiently(lambda: self._client.experiment(view.id)).trials  # noqa: B023
                    waits = [trial.waiting_for for trial in trials if trial.waiting_for]
                    self._note([f"experiment {view.id} does not end: {view.state} {waits}"])
                    self._patiently(Experiment(self._client, view.id).kill)
            self._until_over(self._are_all_over)
        for view in self._experiments():
            if view.id not in self._judged:
                self._judged.add(view.id)
                self.report.experiments += 1
                self._note_lasting(lambda: self._problems_with(view.id), f"experiment {view.id}: ")  # noqa: B023
        self._note_lasting(self._slot_problems, timeout_s=_PATIENCE_S)
        self._note_lasting(self._damages)
        self._note(wrong_sightings(self._data, self._sightings))
        self.report.sightings += len(self._sightings)
        self._sightings = []
        self._note(self._user.problems)
        self._user.problems = []
        self.report.actions = self._user.actions

    def _are_all_over(self) -> bool:
        self._elsewhere.start()
        views = self._experiments()
        for view in views:
            if view.state is State.PAUSED:
                with suppress(DetError):
                    Experiment(self._client, view.id).activate()
        return all(view.state.is_terminal for view in views)

    def _experiments(self) -> list[ExperimentRow]:
        return self._patiently(self._client.experiments)

    def _read(self, number: int) -> StoredExperiment:
        return read_experiment(self._data, self._patiently(lambda: ask(self._client, number)))

    def _read_home(self) -> StoredHome:
        """Return the files and processes of the home, with the master's present answers."""
        self._patiently(lambda: keep(self._client, self._home.path))
        return read_home(self._home.path)

    def _damages(self) -> list[str]:
        self._patiently(lambda: keep(self._client, self._home.path))
        return damages(self._home.path)

    def _problems_with(self, number: int) -> list[str]:
        found = self._read(number)
        if number in self._user.compared:
            return differences(found, self._expected[self._user.kinds[number]])
        states = {found.state, *(trial.shown["state"] for trial in found.trials.values())}
        if illegal := states - {State.COMPLETED, State.CANCELED}:
            return [f"it is {', '.join(sorted(illegal))}: {found.message}"]
        return inconsistencies(found)

    def _slot_problems(self) -> list[str]:
        self._elsewhere.start()  # an agent may have ended late, by a SIGTERM while it was frozen
        agents = self._patiently(self._client.agents)
        told = [f"agent {agent.id} is away" for agent in agents if not agent.connected]
        told += [f"slots of {agent.id} are held: {agent.used}" for agent in agents if agent.used]
        if (there := {agent.id: len(agent.slots) for agent in agents}) != self._slots:
            told.append(f"slots were lost: {there}")
        return told + [
            line for line in leftovers(read_home(self._home.path)) if "outlives" in line
        ]

    def _page_problems(self) -> list[str]:
        self._server.keep()
        try:
            rows = self._server.rows()
        except (OSError, WebSocketException, AssertionError) as error:
            return [f"a page shows nothing: {error!r}"]
        views = {view.id: view for view in self._experiments()}
        if rows.keys() != views.keys():
            return [f"a page shows experiments {sorted(rows)}, not {sorted(views)}"]
        return []

    def trials(self) -> list[TrialView]:
        """Return all trials, as the master shows them."""
        views = [self._client.experiment(each.id) for each in self._experiments()]
        return [trial for view in views for trial in view.trials]

    def finish(self) -> Report:
        """Delete and stop everything, check what is left, and return the report."""
        disturbed = self._judged - {each.id for each in self._expected.values()}
        self._delete(disturbed)
        self._note_lasting(lambda: leftovers(self._read_home()))
        self._delete(self._judged)
        self._note_lasting(self._remains)
        self.stop_surroundings()
        for client in (self._client, self._acting):
            client.session.close()
        self._home.stop()
        self._note_lasting(self._what_lives)
        return self.report

    def stop_surroundings(self) -> None:
        """Stop the processes around the private det_jupyter."""
        self._server.stop()
        self._elsewhere.stop()

    def _delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            with suppress(NotFound, Conflict):
                self._patiently(Experiment(self._client, number).delete)

        def are_gone() -> bool:
            return not any(view.id in numbers for view in self._experiments())

        self._until(are_gone, _SETTLED_S + len(self._judged) * _DELETED_S)

    def _remains(self) -> list[str]:
        """Return the problems after everything was deleted."""
        found = self._read_home()
        told = [f"experiment {view.id} is not deleted" for view in self._experiments()]
        told += [f"not deleted: {path}" for path in found.files if path.startswith(CHECKPOINTS)]
        return told + leftovers(found)

    def _what_lives(self) -> list[str]:
        """Return the problems after everything was stopped."""
        told = [f"process {one.pid} lives" for one in processes_below(self._home.path)]
        # torch keeps its compiled code; find_library of ctypes creates an empty file for a moment.
        others = ("torchinductor_*", "tmp????????")
        left = [p for p in self._temporary.rglob("*") if not any(map(p.match, others))]
        told += [f"left behind: {path} ({path.stat().st_size} bytes)" for path in left]
        return told + leftovers(read_home(self._home.path))

    def _note(self, told: Iterable[str]) -> None:
        self.report.problems += told

    def _note_lasting(
        self, look: Callable[[], list[str]], where: str = "", timeout_s: float = _SETTLED_S
    ) -> None:
        """Record problems that last: files may still be being deleted, for example."""
        deadline = time.monotonic() + timeout_s
        while (told := look()) and time.monotonic() < deadline:
            time.sleep(0.3)
        self._note(f"{where}{line}" for line in told)

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not (is_true := self._patiently(condition)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return is_true

    def _until_over(self, condition: Callable[[], bool]) -> bool:
        """Wait until experiments are over, as long as there is progress."""
        began, before, moved_at = time.monotonic(), -1, time.monotonic()
        while not (is_true := self._patiently(condition)):
            now = time.monotonic()
            if (news := last_news(self._data)) != before:
                before, moved_at = news, now
            if now - moved_at > _STILL_S or now - began > _ENDED_S:
                break
            time.sleep(0.1)
        return is_true

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Return the answer, from the next master if the present one was killed."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except (NotFound, Conflict):
                raise
            except DetError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
