"""Kills a process at a chosen function, so that each step of a start is hit systematically.

record     the functions that each role calls, in an undisturbed experiment
a point    a role and one of these functions. The first process of the role that calls it is
           killed (hooks/sitecustomize.py). Running processes are ended first, as master, agent and
           fork server have passed most of their functions
judged     the experiment has to end as the undisturbed one, value by value, and leave nothing
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from det_jupyter.client import Experiment
from det_jupyter.errors import DetError, WaitTimeout
from tests.processes import DetHome, find, wait_until
from tests.soak import shown
from tests.soak.collected import StoredExperiment, read_experiment, read_home
from tests.soak.judge import differences, leftovers
from tests.soak.restored import contradictions
from tests.soak.trial import submit

HOOKS = Path(__file__).parent / "hooks"
ROLES = ("master", "agent", "fork server", "rank", "loader")
_DAEMONS = {
    "master": "det_jupyter.master",
    "agent": "det_jupyter.agent",
    "fork server": "det_jupyter.rank.zygote",
}
_ENDED_S = 120.0
_SETTLED_S = 20.0
_SHORT = {"name": "single", "metric": "error", "max_length": {"batches": 20}}


@dataclass(frozen=True, slots=True)
class Point:
    """The first call of a function (file:qualified name) in a process of a role."""

    role: str
    function: str


def variables(folder: Path) -> dict[str, str]:
    """Return the environment variables of a home whose processes can be killed at a point.

    Args:
        folder: An empty folder, for the requests to the processes.
    """
    return {"PYTHONPATH": str(HOOKS), "SOAK_POINTS": str(folder)}


class Points:
    """Experiments in each of which a process is killed at a point.

    Args:
        home: A private det_jupyter with `variables(folder)`.
    """

    def __init__(self, home: DetHome, folder: Path) -> None:
        self._home = home
        self._folder = folder
        self._armed = folder / "armed"
        self._sources = home.path / "soak"
        self._sources.mkdir(exist_ok=True)
        self._client = home.client()
        self._undisturbed: StoredExperiment | None = None

    def record(self) -> list[Point]:
        """Run an undisturbed experiment twice, and return its points."""
        self._undisturbed = self._read(self._run())
        (self._folder / "record").touch()
        self._end("master", "agent", "fork server")
        told = differences(self._read(self._run()), self._undisturbed)
        assert not told, told
        (self._folder / "record").unlink()
        self._end("master", "agent", "fork server")
        found: dict[Point, None] = {}
        for role in ROLES:
            lines = (self._folder / f"seen-{role}").read_text().splitlines()
            found |= dict.fromkeys(Point(role, line) for line in lines)
        return list(found)

    def run(self, point: Point) -> list[str]:
        """Kill a process at the point, and return the problems."""
        assert self._undisturbed is not None, "record() comes first"
        self._armed.write_text(f"{point.role} at {point.function}")
        if point.role in _DAEMONS:
            self._end(point.role)
        try:
            experiment = self._run()
        except WaitTimeout as error:
            for view in self._client.experiments():
                if not view.state.is_terminal:
                    Experiment(self._client, view.id).kill()
            return [f"it does not end: {error}"]
        finally:
            was_hit = not self._armed.exists()
            self._armed.unlink(missing_ok=True)
        deadline = time.monotonic() + _SETTLED_S
        while (told := self._problems(experiment)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return told if was_hit else [*told, "it was not reached"]

    def close(self) -> None:
        """Close the connection to the master."""
        self._client.session.close()

    def _run(self) -> Experiment:
        deadline = time.monotonic() + _ENDED_S
        experiment = None
        while True:
            try:
                if experiment is None:
                    experiment = submit(self._client, self._sources, "class", searcher=_SHORT)
                experiment.wait(max(1, deadline - time.monotonic()))
                return experiment
            except WaitTimeout:
                raise
            except DetError:  # the master was killed, or the experiment has failed
                if time.monotonic() > deadline:
                    raise
                with suppress(DetError):
                    if experiment is not None and experiment.view.state.is_terminal:
                        return experiment
                time.sleep(0.1)

    def _read(self, experiment: Experiment) -> StoredExperiment:
        return read_experiment(self._home.path / "data", shown.ask(self._client, experiment.id))

    def _problems(self, experiment: Experiment) -> list[str]:
        assert self._undisturbed is not None
        try:
            shown.keep(self._client, self._home.path)
            told = differences(self._read(experiment), self._undisturbed)
        except DetError as error:
            return [f"the master does not answer: {error}"]
        told += contradictions(self._home.path / "data", shown.read(self._home.path))
        return told + leftovers(read_home(self._home.path))

    def _end(self, *roles: str) -> None:
        """Kill the processes of these roles, which have passed most of their points."""
        for role in roles:
            if (process := find(self._home.path, _DAEMONS[role])) is not None:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                wait_until(lambda: not process.is_running(), f"the {role} has ended")


def choose(points: Sequence[Point], num: int, rng: random.Random) -> list[Point]:
    """Return `num` points, about as many of each role, in the order of their calls."""
    by_role = {role: [point for point in points if point.role == role] for role in ROLES}
    chosen: set[Point] = set()
    while len(chosen) < min(num, len(points)):
        role = rng.choice([role for role, left in by_role.items() if left])
        left = by_role[role]
        chosen.add(left.pop(rng.randrange(len(left))))
    return [point for point in points if point in chosen]


def matching(points: Iterable[Point], text: str) -> list[Point]:
    """Return the points whose role and function contain the text."""
    return [point for point in points if text in f"{point.role} {point.function}"]
