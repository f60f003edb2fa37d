"""A master for tests, without HTTP or as a real process, and an agent without ranks."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from det_jupyter.agent.link.agent_service import BEAT_S
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    PROTOCOL,
    AgentReport,
    AgentReports,
    Capsule,
    Chunk,
    CreateExperiment,
    GangExited,
    GangStarted,
    LogPage,
    LogQuery,
    MasterInfo,
    Offsets,
    RankProcess,
    RegisterAgent,
    RunReport,
    SlotView,
)
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    FirstStep,
    MetricsReported,
    Progress,
    RankStarted,
    Record,
    RunEnded,
    TargetReached,
    to_line,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.master.http.api import create_app
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.service.storing.stored_logs import read_page
from tests.forks import Fork, torch_source, with_python_path
from tests.processes import DetHome, wait_until
from tests.unit.master.machine_invariants import check_machine

AGENT = "here"
RUN = "1.1.1"  # the first run of the first trial of the first experiment


def make_request(**changes: Any) -> CreateExperiment:
    """Return a request for one trial on two slots, judged by `error`."""
    config = {
        "entrypoint": "Trial",
        "hyperparameters": {"global_batch_size": 8},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 100}},
        "resources": {"slots_per_trial": 2},
    }
    return CreateExperiment(
        config=config | changes,
        capsule=Capsule(entrypoint="Trial", payload="0" * 64, sources="0" * 64),
        python=sys.executable,
        cwd="/",
    )


def make_registration(
    session: str,
    *,
    runs: list[RunReport] | None = None,
    slots: list[SlotView] | None = None,
) -> RegisterAgent:
    """Return the registration of an agent, with two slots if no others are given."""
    return RegisterAgent(
        protocol=PROTOCOL,
        version="0",
        session=session,
        hostname=AGENT,
        pid=1,
        slots=slots or [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(2)],
        runs=runs or [],
    )


def make_chunk(records: list[Record], *, offset: int = 0, run: str = RUN, rank: int = 0) -> Chunk:
    """Return records as a piece of a rank's journal."""
    return make_text_chunk(
        "".join(map(to_line, records)), offset=offset, run=run, stream=f"journal-{rank}"
    )


def make_text_chunk(text: str, *, stream: str, offset: int = 0, run: str = RUN) -> Chunk:
    """Return text as a piece of a rank's file."""
    return Chunk(
        allocation_id=run,
        stream=stream,
        offset=offset,
        size_bytes=len(text.encode()),
        text=text,
    )


def gang_started(run: str = RUN) -> GangStarted:
    """Return the report that both ranks exist."""
    ranks = [
        RankProcess(rank=i, pid=10 + i, connection_file="c", output_file="o") for i in range(2)
    ]
    return GangStarted(allocation_id=run, at=1.0, ranks=ranks)


def gang_exited(run: str = RUN, code: int = 0, **changes: Any) -> GangExited:
    """Return the report that both ranks have exited."""
    return GangExited(allocation_id=run, at=2.0, exit_codes={0: code, 1: code}, **changes)


def started() -> RankStarted:
    """Return a rank's first record."""
    return RankStarted(at=1.0, pid=10, backend="gloo", device="cpu")


def first_step() -> FirstStep:
    """Return the record of the first step."""
    return FirstStep(at=1.0, steps_completed=1)


def batches(first: int, losses: list[Any]) -> BatchMetrics:
    """Return a loss for each batch from `first` on."""
    return BatchMetrics(at=1.0, first=first, values={"loss": losses})


def validation(steps: int, error: Any) -> MetricsReported:
    """Return a validation."""
    return MetricsReported(
        at=1.0, group="validation", steps_completed=steps, metrics={"error": error}
    )


def progress(steps: int) -> Progress:
    """Return how far a trial of 100 batches is."""
    return Progress(at=1.0, steps_completed=steps, fraction=steps / 100)


def last_words(steps: int = 100) -> list[Record]:
    """Return the chief's last records of a training of 100 batches."""
    return [
        TargetReached(at=2.0, steps_completed=steps, target=Length("batches", 100)),
        RunEnded(at=2.0, reason="completed", steps_completed=steps),
    ]


class Bench:
    """A master without HTTP, and the commands for its agents.

    Args:
        path: Its database.
    """

    def __init__(self, path: Path) -> None:
        self.store = Store(path)
        self.now = 1000.0
        self.service = Service(self.store, clock=lambda: self.now)

    def register(self, session: str = "first", runs: list[RunReport] | None = None) -> Offsets:
        """Register the agent."""
        return self.service.register(AGENT, make_registration(session, runs=runs))

    def report(
        self, *reports: AgentReport, booted_at: float | None = None
    ) -> dict[str, dict[str, int]]:
        """Deliver a batch of reports; return the stored offsets."""
        batch = AgentReports(session="first", booted_at=booted_at, reports=list(reports))
        return self.service.take_reports(AGENT, batch).offsets

    def feed(self) -> list[tuple[str, dict[str, Any]]]:
        """Return kind and data of every feed item."""
        numbers = [0, *self.service.machine.state.experiments]
        items = [item for n in numbers for item in self.store.feed.after(0, n, 10_000)]
        return [(item.kind, item.data) for item in sorted(items, key=lambda item: item.seq)]

    def metrics(self) -> list[dict[str, Any]]:
        """Return every metrics record."""
        return [data for kind, data in self.feed() if kind == "metrics"]

    def logs(self) -> list[str]:
        """Return every line that was printed."""
        return [line.text for line in self.log_page().lines]

    def log_page(self, trial_id: int = 1, **query: Any) -> LogPage:
        """Return the printed lines of a trial that match."""
        return read_page(self.store.path, [trial_id], LogQuery(**query), is_over=False)

    def commands(self) -> list[str]:
        """Return the kinds of the agent's pending commands."""
        waiting = self.service.links.get(AGENT, "first")._queue
        return [command.kind for command in waiting if command is not None]


def application_of(bench: Bench) -> Guard:
    """Return the application of a bench for users' requests; its token is "token"."""
    info = MasterInfo(
        url="http://127.0.0.1:1", token="token", pid=1, started_at=0.0,
        version="0", protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    return create_app(bench.service, info, request_stop=lambda everything: None)


def ask(bench: Bench, method: str, path: str, **options: Any) -> httpx.Response:
    """Return what the application of a bench answers to a user's request."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(application_of(bench))
        headers = {"authorization": "Bearer token"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:1/api/v1", headers=headers
        ) as client:
            return await client.request(method, path, **options)

    return asyncio.run(request())


@contextmanager
def bench_with_trial(path: Path) -> Iterator[Bench]:
    """Yield a master whose first trial has just been started; check its invariants at the end."""
    bench = Bench(path)
    try:
        bench.register()
        asyncio.run(bench.service.submit(make_request()))
        bench.report(gang_started())
        yield bench
        check_machine(bench.service.machine)
    finally:
        bench.service.close()


class FakeAgent:
    """An agent over HTTP: registers, receives commands in a thread, reports as the test calls."""

    def __init__(self, info: MasterInfo, slots: list[SlotView] | None = None) -> None:
        self.session = "first"
        self._slots = slots
        self.commands: queue.Queue[tuple[float, dict[str, Any]]] = queue.Queue()
        self.http = make_client(info)
        self.stored: dict[str, dict[str, int]] = {}  # the answer to the registration
        self._stream: threading.Thread | None = None
        self._beat: threading.Thread | None = None
        self._is_closed = threading.Event()

    def register(self, runs: list[RunReport] | None = None) -> dict[str, dict[str, int]]:
        """Register and start to receive commands; return the offsets."""
        word = make_registration(self.session, runs=runs, slots=self._slots)
        body = word.model_dump(mode="json")
        answer = self.http.post(f"/agents/{AGENT}/register", json=body)
        assert answer.status_code == 200, answer.text
        self._stream = threading.Thread(target=self._listen, daemon=True)
        self._stream.start()
        self._beat = threading.Thread(target=self._live, daemon=True)
        self._beat.start()
        return Offsets.model_validate(answer.json()).offsets

    def _listen(self) -> None:
        try:
            with self.http.stream(
                "GET", f"/agents/{AGENT}/commands", params={"session": self.session}
            ) as answer:
                for line in answer.iter_lines():
                    if line:
                        self.commands.put((time.perf_counter(), json.loads(line)))
        except httpx.HTTPError:
            return  # the master was killed, or we were closed

    def _live(self) -> None:
        while not self._is_closed.wait(BEAT_S):
            with suppress(httpx.HTTPError):  # the master has exited
                self.report()

    def next_command(self) -> dict[str, Any]:
        """Return the next command."""
        return self.commands.get()[1]

    def report(self, *reports: AgentReport) -> httpx.Response:
        """Deliver a batch of reports."""
        body = AgentReports(session=self.session, reports=list(reports)).model_dump(mode="json")
        return self.http.post(f"/agents/{AGENT}/reports", json=body)

    def close(self) -> None:
        """Disconnect; the master must have exited, which ends the stream of commands."""
        self._is_closed.set()
        for thread in (self._stream, self._beat):
            if thread is not None:
                thread.join()
                assert not thread.is_alive()
        self.http.close()


def make_client(info: MasterInfo) -> httpx.Client:
    """Return an HTTP client with the master's token."""
    return httpx.Client(
        base_url=f"{info.url}/api/v1",
        headers={"Authorization": f"Bearer {info.token}"},
        trust_env=False,
    )


class MasterProcess:
    """`python -m det_jupyter.master serve --no-agent` in a home of its own.

    It is a fork with its modules loaded ([m] 0.1 instead of 0.8 s CPU until it serves).
    Those that `spawn` starts are started as by a user.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._process: Fork | None = None
        self._agents: list[FakeAgent] = []

    @property
    def environ(self) -> dict[str, str]:
        """Variables of processes that belong to it."""
        return os.environ | {paths.HOME_VARIABLE: str(self.home)}

    def start(
        self, main: str = "det_jupyter.master.__main__:main", **variables: str
    ) -> MasterInfo:
        """Start it and wait until it serves."""
        self._process = torch_source().start(
            main,
            argv=["master", "serve", "--no-agent"],
            environment=with_python_path(self.environ) | variables,
        )
        return wait_until(self._info, "the master serves")

    def agent(self, info: MasterInfo, runs: list[RunReport] | None = None) -> FakeAgent:
        """Return an agent that has registered; it disconnects when the master has exited."""
        agent = FakeAgent(info)
        self._agents.append(agent)
        agent.stored = agent.register(runs)
        return agent

    def spawn(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a process of the master's program."""
        return subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.master", *arguments],
            env=self.environ | variables,
            stdout=subprocess.PIPE,
        )

    def fork(self, *arguments: str, outputs: Sequence[Path] = ()) -> Fork:
        """Start the master's program in a fork; what it starts are forks, too."""
        return torch_source().start(
            "tests.forked_main:run_master",
            argv=["master", *arguments],
            environment=with_python_path(self.environ),
            outputs=outputs,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end, in a fork; return exit status and output."""
        status, output, _ = self.run_with_errors(*arguments)
        return status, output

    def run_with_errors(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end, in a fork; return exit status, output and errors."""
        with tempfile.TemporaryDirectory() as folder:
            outputs = Path(folder, "out"), Path(folder, "err")
            status = self.fork(*arguments, outputs=outputs).wait()
            return status, outputs[0].read_text(), outputs[1].read_text()

    def _info(self) -> MasterInfo | None:
        assert self._process is not None
        assert self._process.poll() is None, "the master has ended"
        path = self.home / "runtime" / "master.json"
        try:
            info = MasterInfo.model_validate_json(path.read_bytes())
        except FileNotFoundError:  # the next master removes that of a killed one
            return None
        return info if info.pid == self._process.pid else None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and return its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Return its exit status once it has ended."""
        assert self._process is not None
        process, self._process = self._process, None
        status = process.wait()
        while self._agents:
            self._agents.pop().close()
        return status

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended by us."""
        return self._process is not None


@contextmanager
def master_process(home: Path) -> Iterator[MasterProcess]:
    """Yield a master that has not been started; end it afterwards."""
    master = MasterProcess(home)
    try:
        yield master
    finally:
        if master.is_running:
            master.end()
        DetHome(home).assert_nothing_left()
