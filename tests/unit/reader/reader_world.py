"""A master in this process, and the reader's replica of it, which reads when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported, Progress
from det_jupyter.master.machine.model.events import Event
from det_jupyter.master.service.reports.journal_records import JournalWriter, take_record
from det_jupyter.master.service.reports.run_verdicts import RunVerdicts
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.store import Store
from det_jupyter.reader.replica import News, Replica

FIRST = "1.1.1"  # the first run of the first trial of the first experiment


class Still(Replica):
    """A replica that reads in the thread of the test, and only then."""

    def _start(self) -> Callable[[], None]:
        self.is_ready = False
        return lambda: None

    def turn(self) -> News:
        """Read, and tell listeners."""
        news = self.read()
        self.listeners.notify(news)
        return news

    def close(self) -> None:
        self._forget()


class World:
    """A master whose clock stands between events, and a replica."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "det.sqlite3"
        self.now = 1000.0
        self.service = self._start()
        self._replicas: list[Still] = []
        self.replica = self.open_replica()

    def _start(self) -> Service:
        service = Service(Store(self.path), clock=lambda: self.now)
        service.views._has_link = lambda agent_id: True  # agents are played, by events alone
        return service

    def open_replica(self, recent_s: float = 0.0) -> Still:
        replica = Still(self.path, clock=lambda: self.now, recent_s=recent_s)
        self._replicas.append(replica)
        return replica

    def tell(self, *events: Event) -> None:
        """Have the master take events, each at a second of its own."""
        for event in events:
            self.now += 1.0
            self.service.take(event)

    def report(
        self, *records: BatchMetrics | MetricsReported | Progress, run: str = FIRST
    ) -> None:
        """Have the master store what a run has reported, if there is such a trial."""
        experiment_id, trial_id, number = map(int, run.split("."))
        if trial_id not in self.service.machine.state.trials:
            return
        source = JournalWriter(
            allocation_id=run, experiment_id=experiment_id, trial_id=trial_id, run=number,
            rank=0, agent="box", metric="error", time_metric=None, policies=(),
        )  # fmt: skip
        with self.service._transaction() as transaction:
            for record in records:
                take_record(transaction, RunVerdicts(), source, record)

    def snapshot(self) -> None:
        """Have the master store a snapshot of its state now."""
        machine = self.service.machine
        with self.service.store.transaction():
            self.service.store.history.add_snapshot(machine.state.seq, machine.dump())

    def restart(self) -> None:
        """End the master, and start another one from what it has stored."""
        self.service.close()
        self.service = self._start()

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        self.service.close()


@contextmanager
def world(folder: Path) -> Iterator[World]:
    made = World(folder)
    try:
        yield made
    finally:
        made.close()


def losses(first: int, *values: float) -> BatchMetrics:
    return BatchMetrics(at=1000.0 + first, first=first, values={"loss": [*values]})


def validation(steps: int, error: float) -> MetricsReported:
    return MetricsReported(
        at=1000.0 + steps, group="validation", steps_completed=steps, metrics={"error": error}
    )


def progress(steps: int) -> Progress:
    return Progress(at=1.0, steps_completed=steps, fraction=steps / 100)
