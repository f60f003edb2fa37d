"""Real gangs without master or agent: ranks forked from a real zygote, with hand-written specs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter

from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.paths import HOME_VARIABLE
from det_jupyter.contract.host.rundir import RunDir, run_dir
from det_jupyter.contract.messages import (
    Capsule,
    CheckpointRef,
    ForkGang,
    GangForked,
    GangPlan,
    Order,
    RankExited,
    RankPlace,
    RankSpec,
    SlotView,
    ZygoteReady,
    ZygoteReport,
)
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    CheckpointSaved,
    MetricsReported,
    RankFailure,
    Record,
    RunEnded,
    parse_line,
)
from det_jupyter.contract.values.lengths import Length, parse_length
from det_jupyter.front.notebook.capture.pickling import pack
from det_jupyter.storage import reading
from tests.forks import torch_source
from tests.waiting import wait_until

R = TypeVar("R")

CELL = "<cell 5>"
LABEL = "Cell In[5]"
_REPORT: TypeAdapter[ZygoteReport] = TypeAdapter(ZygoteReport)


class Zygote:
    """A zygote of the worker, and what it has reported."""

    def __init__(self, connection: socket.socket, lifeline_fd: int, keep_open: int) -> None:
        self.lifeline_fd = lifeline_fd  # of its process, not of this one
        self._keep_open = keep_open
        self._connection = connection
        self._buffer = b""
        self._exit_codes: dict[int, int] = {}

    def fork(self, specs: list[RankSpec]) -> list[int]:
        """Fork the ranks and return their pids."""
        self._connection.sendall(
            ForkGang.of(specs, until=time.monotonic() + 60).model_dump_json().encode() + b"\n"
        )
        while True:
            report = self._next()
            if isinstance(report, GangForked):
                return report.pids
            assert isinstance(report, RankExited), report
            self._exit_codes[report.pid] = report.exit_code

    def wait_ready(self) -> None:
        """Wait until everything is imported."""
        report = self._next()
        assert isinstance(report, ZygoteReady), report
        assert report.unsafe == ""

    def exit_codes(self, pids: list[int], *, enough: int) -> dict[int, int]:
        """Wait until so many of the ranks have ended, and return their exit codes."""
        while len(found := self._exit_codes.keys() & set(pids)) < enough:
            report = self._next()
            assert isinstance(report, RankExited), report
            self._exit_codes[report.pid] = report.exit_code
        return {pid: self._exit_codes[pid] for pid in found}

    def cut_lifeline(self) -> None:
        """Let the ranks believe that their agent has died."""
        os.close(self._keep_open)
        self._keep_open = -1

    def close(self) -> None:
        """End the zygote, and with it its ranks."""
        with suppress(OSError):  # it may have ended
            # A process forked by a test may have the socket open, too: closing is not enough.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        if self._keep_open >= 0:
            os.close(self._keep_open)

    def _next(self) -> ZygoteReport:
        while b"\n" not in self._buffer:
            data = self._connection.recv(1 << 16)
            assert data, "the zygote is gone"
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return _REPORT.validate_json(line)


@contextmanager
def running_zygote(folder: Path) -> Iterator[Zygote]:
    """Run a zygote; its ranks end with it."""
    ours, theirs = socket.socketpair()
    lifeline = os.pipe()
    fork = torch_source().start(
        "tests.integration.parallel_ranks:become_zygote",
        outputs=[folder / "zygote.out"] * 2,
        descriptors=[theirs.fileno(), lifeline[0]],
    )
    theirs.close()
    os.close(lifeline[0])
    zygote = Zygote(ours, fork.descriptors[1], lifeline[1])
    try:
        zygote.wait_ready()
        yield zygote
    finally:
        zygote.close()
        assert fork.wait() == 0


class Gang:
    """A running gang. The first rank that fails ends it, as the agent would."""

    def __init__(self, zygote: Zygote, plan: GangPlan, folder: RunDir, pids: list[int]) -> None:
        self.plan = plan
        self.folder = folder
        self.pids = pids
        self._zygote = zygote

    @property
    def page(self) -> ControlPage:
        """The control page."""
        return ControlPage(self.folder.control)

    def records(self, rank: int = 0) -> list[Record]:
        """Return what the rank has journaled so far, whole lines only."""
        with suppress(FileNotFoundError):
            lines = self.folder.journal(rank).read_text().splitlines(keepends=True)
            return [parse_line(line) for line in lines if line.endswith("\n")]
        return []

    def of(self, kind: type[R], rank: int = 0) -> list[R]:
        """Return the rank's records of one kind."""
        return [record for record in self.records(rank) if isinstance(record, kind)]

    def wait(self) -> list[int]:
        """Wait for the end and return the exit codes in the order of ranks."""
        codes: dict[int, int] = {}
        while len(codes) < len(self.pids):
            codes = self._zygote.exit_codes(self.pids, enough=len(codes) + 1)
            if any(codes.values()):
                self.kill()
        return [codes[pid] for pid in self.pids]

    def wait_for_all(self) -> list[int]:
        """Wait for the end of every rank while nobody ends the others when one fails."""
        codes = self._zygote.exit_codes(self.pids, enough=len(self.pids))
        return [codes[pid] for pid in self.pids]

    def kill(self) -> None:
        """End all ranks now."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def wait_until(self, condition: Callable[[], R], what: str) -> R:
        """Return the first true value of `condition`, which a gang may soon have passed."""

        def value() -> R:
            found = condition()
            assert found or not self.failures(), f"failed before {what}:\n{self.output()}"
            return found

        return wait_until(value, what, most_s=0.05)

    def steps_completed(self) -> int:
        """Return how far the chief has journaled."""
        last = self.of(BatchMetrics)[-1:]
        return max(
            (batch.first + len(values) - 1 for batch in last for values in batch.values.values()),
            default=0,
        )

    def output(self) -> str:
        """Return what all ranks printed."""
        return "\n".join(
            self.folder.output(rank).read_text()
            for rank in range(len(self.pids))
            if self.folder.output(rank).exists()
        )

    def ended(self) -> RunEnded:
        """Wait for the run to end well and return its last record."""
        codes = self.wait()
        assert codes == [0] * len(codes), self.output()
        return self.of(RunEnded)[-1]

    def failures(self) -> list[RankFailure]:
        """Return the failures of all ranks, the earliest first."""
        found = [f for rank in range(len(self.pids)) for f in self.of(RankFailure, rank)]
        return sorted(found, key=lambda failure: failure.at)

    def validations(self) -> list[MetricsReported]:
        """Return the validations."""
        return [r for r in self.of(MetricsReported) if r.group == "validation"]

    def last_checkpoint(self) -> CheckpointRef:
        """Return the newest checkpoint."""
        saved = self.of(CheckpointSaved)[-1]
        return CheckpointRef(
            uuid=saved.uuid, path=saved.path, steps_completed=saved.steps_completed
        )

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the first model's weights in the newest checkpoint."""
        with reading(self.last_checkpoint().path) as folder:
            state = torch.load(folder / "state_dict.pt", weights_only=True)
        models: list[dict[str, torch.Tensor]] = state["models"]
        return models[0]


class Lab:
    """Starts gangs under a folder of its own."""

    def __init__(self, root: Path, zygote: Zygote, sockets: Path) -> None:
        self.data_dir = root / "data"
        self.cwd = root / "notebooks"
        self.cwd.mkdir(parents=True)
        self._zygote = zygote
        self._sockets = sockets
        self._runs = 0
        self._gangs: list[Gang] = []

    def capture(self, source: str, entrypoint: str) -> Capsule:
        """Return a capsule of the class that the cell's source defines."""
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, CELL, "exec"), namespace)
        blobs = BlobStore(self.data_dir / "blobs")
        cells = {CELL: {"label": LABEL, "source": source}}
        stream, pickler = pack(namespace[entrypoint], [], namespace, blobs)
        return Capsule(
            entrypoint=entrypoint,
            payload=blobs.put(stream),
            buffers=pickler.buffers,
            sources=blobs.put(json.dumps(cells).encode()),
        )

    def start(
        self,
        source: str,
        config: dict[str, Any],
        *,
        ranks: int = 2,
        checkpoint: CheckpointRef | None = None,
        best_metric: float | None = None,
        seed: int = 7,
        target: Length | None = None,
        orders: Sequence[Order] = (),
        places: list[dict[str, int]] | None = None,
    ) -> Gang:
        """Start a gang; `config` is what the user would write.

        Args:
            target: Where the ranks wait to hear whether they go on; None: they train to the end.
            orders: Changes that earlier runs have made.
            places: What each rank's place says differently, to feign several computers.
        """
        plan, folder = self.prepare(
            source,
            config,
            ranks,
            checkpoint=checkpoint,
            best_metric=best_metric,
            seed=seed,
            target=target,
            orders=orders,
        )
        specs = self.specs(plan, folder)
        for index, changes in enumerate(places or []):
            place = specs[index].place.model_copy(update=changes)
            specs[index] = specs[index].model_copy(update={"place": place})
        return self._fork(plan, folder, specs)

    def start_plan(self, plan: GangPlan, folder: RunDir) -> Gang:
        """Start the gang of a prepared plan."""
        return self._fork(plan, folder, self.specs(plan, folder))

    def _fork(self, plan: GangPlan, folder: RunDir, specs: list[RankSpec]) -> Gang:
        gang = Gang(self._zygote, plan, folder, self._zygote.fork(specs))
        self._gangs.append(gang)
        return gang

    def prepare(
        self,
        source: str,
        config: dict[str, Any],
        ranks: int,
        *,
        checkpoint: CheckpointRef | None = None,
        best_metric: float | None = None,
        seed: int = 7,
        target: Length | None = None,
        orders: Sequence[Order] = (),
    ) -> tuple[GangPlan, RunDir]:
        """Return the plan of a gang and its folder, made; a `target` is not the last."""
        document = {"resources": {"slots_per_trial": ranks}} | config
        effective = parse_config(document, default_seed=seed).to_document()
        self._runs += 1
        plan = GangPlan(
            allocation_id=f"1.1.{self._runs}",
            experiment_id=1,
            trial_id=1,
            run=self._runs,
            python=sys.executable,
            cwd=str(self.cwd),
            slots=[SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(ranks)],
            config=effective,
            hparams=effective["hyperparameters"],
            seed=seed,
            capsule=self.capture(source, effective["entrypoint"]),
            checkpoint=checkpoint,
            best_metric=best_metric,
            target=target or parse_length(effective["searcher"]["max_length"]),
            target_is_last=target is None,
            orders=list(orders),
        )
        folder = run_dir(self.data_dir, plan.allocation_id)
        folder.path.mkdir(parents=True)
        create_page(folder.control)
        return plan, folder

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a process that must not touch the user's det_jupyter."""
        return {**os.environ, HOME_VARIABLE: str(self.data_dir.parent), **variables}

    def specs(self, plan: GangPlan, folder: RunDir) -> list[RankSpec]:
        """Return what each rank of the plan is told."""
        sockets = self._sockets / plan.allocation_id
        sockets.mkdir(exist_ok=True)
        world_size = len(plan.slots)
        return [
            RankSpec(
                plan=plan,
                place=RankPlace(
                    rank=rank,
                    world_size=world_size,
                    local_rank=rank,
                    local_world_size=world_size,
                    master_addr="127.0.0.1",
                    master_port=0,
                    lifeline_fd=self._zygote.lifeline_fd,
                ),
                run_dir=str(folder.path),
                data_dir=str(self.data_dir),
                socket_dir=str(sockets),
                store=str(sockets / "store"),
                secret="5e" * 32,
            )
            for rank in range(world_size)
        ]

    def with_zygote(self, zygote: Zygote) -> Lab:
        """Return a lab in the same folders whose ranks come from another zygote."""
        other = copy(self)
        other._zygote = zygote
        other._gangs = []
        return other

    def close(self) -> None:
        """End what a failed test has left."""
        for gang in self._gangs:
            gang.kill()
            gang.wait_for_all()


@contextmanager
def opened_lab(root: Path, zygote: Zygote) -> Iterator[Lab]:
    """Give a lab under a folder; none of its gangs is left after."""
    sockets = Path(tempfile.mkdtemp(prefix="ranks-"))  # folders of tests are too long for sockets
    lab = Lab(root, zygote, sockets)
    yield lab
    lab.close()
    shutil.rmtree(sockets)
