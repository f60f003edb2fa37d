"""A real agent with stand-in ranks, and a fake master that speaks the wire and can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.runs.remote_master import RemoteMaster
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RunDir, run_dir
from det_jupyter.contract.messages import (
    PROTOCOL,
    AgentCommand,
    AgentReports,
    Capsule,
    Chunk,
    CloseRun,
    DevicesSeen,
    GangExited,
    GangPlan,
    GangStarted,
    KillGang,
    MasterInfo,
    Offsets,
    RegisterAgent,
    SignalGang,
    SlotView,
    StartGang,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.values.lengths import Length
from tests.forks import torch_source, with_python_path
from tests.processes import processes_of, wait_until

ROOT = Path(__file__).parents[2]
STAND_IN = "tests.integration.agent_stand_in:run_rank"
TORCH_FILES = ("__init__.py", "distributed.py")  # all that a zygote cannot do without


def make_plan(
    allocation_id: str, acts: Any, *, slots: int | list[SlotView] = 2, **changes: Any
) -> GangPlan:
    """Return the plan of a gang whose ranks do `acts` (see agent_stand_in)."""
    if isinstance(slots, int):
        slots = [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(slots)]
    plan = GangPlan(
        allocation_id=allocation_id,
        experiment_id=1,
        trial_id=1,
        run=1,
        python=sys.executable,
        cwd=str(ROOT),
        slots=slots,
        config={},
        hparams={"acts": acts},
        seed=0,
        capsule=Capsule(entrypoint="Trial", payload="0" * 64, sources="0" * 64),
        target=Length("batches", 100),
    )
    return plan.model_copy(update=changes)


def run_of(plan: GangPlan) -> AgentRun:
    """Return a run of a plan, of which no file exists."""
    return AgentRun(plan=plan, dir=RunDir(Path("/nowhere")), sockets=None)


class FakeMaster:
    """What a master is to an agent. It keeps its data when it is stopped and started again.

    Args:
        home: DET_JUPYTER_HOME of the agents that shall find it.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.registrations: list[RegisterAgent] = []
        self.registered: dict[str, list[RegisterAgent]] = {}  # by agent
        self.devices: dict[str, list[DevicesSeen]] = {}  # by agent
        self.samples: list[SystemSample] = []
        self.missing: dict[str, dict[str, str]] = {}  # why values are missing, by source and name
        self.told_by: dict[str, str] = {}  # allocation -> the agent that told of its end
        self.texts: dict[tuple[str, str], list[str]] = {}
        self.sizes: dict[tuple[str, str], int] = {}
        self.arrivals: list[Chunk] = []
        self.started: dict[str, GangStarted] = {}
        self.exited: dict[str, GangExited] = {}
        self.mistakes: list[str] = []
        self.num_requests = 0
        self.forget_answers = False  # store what comes, then fail to say so
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[str, asyncio.Queue[AgentCommand]] = {}  # by agent
        self._token = ""

    # what a test does with it

    @property
    def is_linked(self) -> bool:
        """Whether an agent listens for commands."""
        return bool(self._queues)

    def start(self) -> None:
        """Serve on a new port with a new token, and say so in the master's file."""
        self._token = secrets.token_hex(8)
        config = uvicorn.Config(
            self._app(), port=0, lifespan="off", log_config=None, access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        server = self._server
        wait_until(lambda: server.started, "the fake master serves")
        port = server.servers[0].sockets[0].getsockname()[1]
        info = MasterInfo(
            url=f"http://127.0.0.1:{port}",
            token=self._token,
            pid=os.getpid(),
            started_at=time.time(),
            version="0",
            protocol=PROTOCOL,
            python=sys.executable,
            data_dir="",
        )
        path = self.home / "runtime" / "master.json"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths.write_private(path, info.model_dump_json())

    def stop(self) -> None:
        """Vanish without a word; the file about it stays."""
        if self._server is None or self._thread is None:
            return
        self._server.force_exit = self._server.should_exit = True
        self._thread.join()
        self._server = self._thread = None
        self._queues.clear()

    @property
    def linked(self) -> list[str]:
        """The agents that listen for commands."""
        return sorted(self._queues)

    def order(self, command: AgentCommand, *, to: str | None = None) -> None:
        """Send a command to this agent, or to all that are linked."""
        assert self._loop is not None
        for agent_id, queue in self._queues.items():
            if to in (None, agent_id):
                self._loop.call_soon_threadsafe(queue.put_nowait, command)

    def begin(self, plan: GangPlan) -> GangStarted:
        """Start a gang and wait until it is."""
        self.order(StartGang(plan=plan), to=plan.agent_ids[0] if plan.agent_ids else None)
        return wait_until(lambda: self.started.get(plan.allocation_id), "the gang has started")

    def signal(self, allocation_id: str, timeout_s: float) -> None:
        """Ask a gang to leave."""
        self.order(SignalGang(allocation_id=allocation_id, signal="preempt", timeout_s=timeout_s))

    def kill(self, allocation_id: str) -> GangExited:
        """Kill a gang and wait until it is gone."""
        self.order(KillGang(allocation_id=allocation_id))
        return self.end_of(allocation_id)

    def close(self, allocation_id: str) -> None:
        """Close a run."""
        self.order(CloseRun(allocation_id=allocation_id))

    def end_of(self, allocation_id: str) -> GangExited:
        """Wait for the end of a gang."""
        what = "the gang's end is told"
        return wait_until(lambda: self.exited.get(allocation_id), what)

    def sampled(self, source: str, name: str) -> list[float]:
        """Return the values that have come of this name of this source."""
        return [
            sample.values[source][name]
            for sample in self.samples
            if name in sample.values.get(source, {})
        ]

    def text(self, allocation_id: str, stream: str) -> str:
        """Return what has come of a stream."""
        return "".join(self.texts.get((allocation_id, stream), []))

    # what it is to an agent

    def _serve(self) -> None:
        assert self._server is not None
        asyncio.run(self._server.serve())

    def _authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {self._token}":
            raise HTTPException(401, "wrong token")

    def _app(self) -> FastAPI:
        app = FastAPI(dependencies=[Depends(self._authenticate)])
        prefix = "/api/v1/agents/{agent_id}"
        app.add_api_route(f"{prefix}/register", self._register, methods=["POST"])
        app.add_api_route(f"{prefix}/commands", self._commands, methods=["GET"])
        app.add_api_route(f"{prefix}/reports", self._reports, methods=["POST"])
        return app

    async def _register(self, agent_id: str, registration: RegisterAgent) -> Offsets:
        self.num_requests += 1
        self.registrations.append(registration)
        self.registered.setdefault(agent_id, []).append(registration)
        return self._offsets()

    async def _commands(self, agent_id: str, session: str) -> StreamingResponse:
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[AgentCommand] = asyncio.Queue()
        self._queues[agent_id] = queue

        async def lines() -> AsyncIterator[str]:
            yield "\n"
            while True:
                try:
                    async with asyncio.timeout(5):
                        command = await queue.get()
                    yield command.model_dump_json() + "\n"
                except TimeoutError:
                    yield "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _reports(self, agent_id: str, batch: AgentReports) -> Offsets:
        self.num_requests += 1
        for report in batch.reports:
            match report:
                case Chunk():
                    self._store(report)
                case GangStarted():
                    self.started[report.allocation_id] = report
                case DevicesSeen():
                    self.devices.setdefault(agent_id, []).append(report)
                case SystemSampled():
                    self.samples += report.samples
                    for source, reasons in report.missing.items():
                        self.missing.setdefault(source, {}).update(reasons)
                case GangExited():
                    self.told_by[report.allocation_id] = agent_id
                    self.exited[report.allocation_id] = report
        if self.forget_answers:
            raise HTTPException(500, "as if it had died before it could answer")
        return self._offsets()

    def _store(self, chunk: Chunk) -> None:
        key = (chunk.allocation_id, chunk.stream)
        if chunk.allocation_id in self.exited:
            self.mistakes.append(f"{key}: a chunk after the exit")
        if chunk.offset != self.sizes.get(key, 0):
            self.mistakes.append(f"{key}: got {chunk.offset}, expected {self.sizes.get(key, 0)}")
            return
        if not chunk.text.endswith("\n"):
            self.mistakes.append(f"{key}: not whole lines")
        self.arrivals.append(chunk)
        self.texts.setdefault(key, []).append(chunk.text)
        self.sizes[key] = chunk.offset + chunk.size_bytes

    def _offsets(self) -> Offsets:
        offsets: dict[str, dict[str, int]] = {}
        for (allocation_id, stream), size in self.sizes.items():
            offsets.setdefault(allocation_id, {})[stream] = size
        return Offsets(offsets=offsets)


class AgentProcess:
    """`python -m det_jupyter.agent`, a fork with its modules loaded, as is its first fork server.

    Args:
        home: Its DET_JUPYTER_HOME.
        variables: More environment variables.
        options: More command line options.
    """

    def __init__(self, home: Path, variables: dict[str, str], options: list[str]) -> None:
        self.home = home
        self.log = home / "agent.out"
        home.mkdir(exist_ok=True)
        path = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(), str(ROOT)])
        self.process = torch_source().start(
            "tests.integration.forked_agent:run_agent",
            path, 256,  # a low limit of files, to see that it is raised
            argv=["agent", "--target", STAND_IN, *options],
            environment=with_python_path(os.environ)
            | variables | {paths.HOME_VARIABLE: str(home)},
            outputs=[self.log, self.log],
        )  # fmt: skip

    def zygotes(self) -> list[psutil.Process]:
        """Return its zygotes (which ranks are children of, not it)."""
        return psutil.Process(self.process.pid).children()

    def crash(self) -> None:
        """End it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Ask it to leave, if it lives."""
        self.process.terminate()
        self.process.wait()


@contextmanager
def agent_with_master(
    home: Path,
    variables: dict[str, str] | None = None,
    options: list[str] | None = None,
    *,
    num_agents: int = 1,
) -> Iterator[tuple[AgentProcess, FakeMaster]]:
    """Run an agent process whose agents are linked to a fake master. Nothing is left after."""
    master = FakeMaster(home)
    master.start()
    try:
        with AgentProcess(home, variables or {}, options or []) as agent:
            wait_until(lambda: len(master.linked) == num_agents, "the agents are linked")
            yield agent, master
    finally:
        master.stop()
        assert_gone(home)
        remove_sockets(home)
    assert master.mistakes == []


def remove_sockets(home: Path) -> None:
    """Do what the next agent would, for one that was killed and has no successor."""
    note = home / "runtime" / "agent.sockets"
    if note.exists():
        shutil.rmtree(note.read_text(), ignore_errors=True)


def assert_gone(home: Path) -> None:
    """Fail if a process is left that was started under this home; end it."""
    try:
        wait_until(lambda: not processes_of(home), "all processes are gone")
    finally:
        for process in processes_of(home):
            process.kill()


def files_of(home: Path, allocation_id: str) -> RunDir:
    """Return the folder of a run."""
    return run_dir(home / "data", allocation_id)


def make_interpreter(folder: Path, *, borrows: bool = True, torch: str | None = None) -> str:
    """Make a small virtual environment, with the packages of ours or without; return its python.

    Its kernel spec starts the stand-in for ranks. `torch` is the code of a torch of its own.
    """
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    home = Path(sys.base_prefix) / "bin"
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    if borrows:
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if torch is not None:
        write_torch(packages, torch)
    kernel = folder / "share" / "det_jupyter" / "kernels" / "det-worker"
    kernel.mkdir(parents=True)
    argv = ["python", "-m", "tests.integration.agent_stand_in", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv}))
    return str(python)


def write_torch(packages: Path, code: str) -> None:
    """Put a torch that consists of this code among the packages."""
    (packages / "torch").mkdir(parents=True)
    for name, text in zip(TORCH_FILES, (code, ""), strict=True):
        (packages / "torch" / name).write_text(text)


def torch_built_for(cuda: str | None) -> str:
    """Return the code of a torch that can do nothing but say what it was built for."""
    return f"""
from types import SimpleNamespace
version = SimpleNamespace(cuda={cuda!r}, hip=None)
cuda = SimpleNamespace(is_initialized=lambda: False, _is_in_bad_fork=lambda: False)
"""


class EndlessLease:
    """The lease of an agent elsewhere, whose master always answers."""

    async def hold(self) -> int:
        return 0

    def has_expired_since(self, number: int) -> bool:
        return False

    def release(self) -> None:
        pass

    def renew(self, began_at: float) -> None:
        pass


def remote_master(listener: GangListener | None = None) -> RemoteMaster:
    """Return what an agent has whose master is on another computer, which always answers."""
    return RemoteMaster(
        address="127.0.0.1",
        lease=cast(Lease, EndlessLease()),
        listener=listener or GangListener(),
    )
