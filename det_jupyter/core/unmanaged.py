"""Runs that a user starts by hand: `core.init(name=...)` outside of experiments.

    chief                                               other ranks
    writes a folder with the request
    starts the follower, which begins the run           wait for the folder
    every rank: a context as in an experiment, with its journal in that folder, and a copy of
    what it prints
    leaves the block: RunEnded or RankFailure           the same
    closes the pipe, and waits until all is stored

Without a master, the plan is made here and there is no follower; `det e sync` takes the folder in.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from det_jupyter.config import ExperimentConfig, Length, parse_config
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import RunDir, without_run
from det_jupyter.contract.messages import (
    UNMANAGED,
    Capsule,
    GangPlan,
    RankProcess,
    SlotView,
    StartUnmanaged,
)
from det_jupyter.contract.run.control_page import create_page
from det_jupyter.contract.run.evidence_page import create_evidence_page
from det_jupyter.contract.run.journal import (
    RankStarted,
    RunEnded,
)
from det_jupyter.contract.run.unmanaged import (
    FOLLOWER,
    Announcement,
    latest_offline,
    offline_runs,
    request_file,
    sources_file,
    unmanaged_runs,
)
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
from det_jupyter.core import managed
from det_jupyter.core.argument_checks import quoted
from det_jupyter.core.context import Context
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.event_reading import end_reading
from det_jupyter.core.failures import record_of
from det_jupyter.core.info import read_run
from det_jupyter.core.journal import Journal
from det_jupyter.core.own_device import own_slot
from det_jupyter.core.printed import PrintedCopy
from det_jupyter.errors import ConfigError, Conflict, DetError, Problem

logger = logging.getLogger(__name__)

OFFLINE_VARIABLE = "DET_JUPYTER_OFFLINE"
_SENT_S = 30.0  # how long the end of a block waits until all is stored
_MOST_SOURCE = 1_000_000  # bytes of a script that is stored
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_begun: Context | None = None  # of the run that this process has begun last


@dataclass(frozen=True, slots=True)
class ByHand:
    """The arguments of `core.init` about an unmanaged experiment; see there.

    Raises:
        ConfigError: One is wrong, or needs a name.
    """

    name: str | None
    hparams: Mapping[str, Any] | None
    metric: str
    smaller_is_better: bool
    labels: Sequence[str]
    resume: bool
    offline: bool
    checkpoint_storage: str | Path | None

    def __post_init__(self) -> None:
        problems = []
        if self.name is None and (self.hparams is not None or self.labels or self.offline):
            problems.append("core.init: name: it is missing; hparams, labels and offline need one")
        if self.hparams is not None and not isinstance(self.hparams, Mapping):
            problems.append(f"core.init: hparams: got {quoted(self.hparams)}, expected a dict")
        if isinstance(self.labels, str) or not isinstance(self.labels, Iterable):
            given = quoted(self.labels)
            problems.append(f"core.init: labels: got {given}, expected a list of texts")
        for name, value in (("resume", self.resume), ("offline", self.offline)):
            if not isinstance(value, bool):
                problems.append(f"core.init: {name}: got {quoted(value)}, expected True or False")
        storage = self.checkpoint_storage
        if storage is not None and (not isinstance(storage, str | Path) or storage == ""):
            problems.append(
                f"core.init: checkpoint_storage: got {quoted(storage)}, expected a folder"
            )
        if problems:
            raise ConfigError(problems)


def open_unmanaged(given: ByHand, distributed: DistributedContext, length: Length) -> Context:
    """Begin a run with the ranks of `distributed`; return the context of this process.

    All ranks must call this in step.

    Raises:
        ConfigError: An argument is wrong.
        Conflict: An experiment of this name is running.
    """
    global _begun
    if _begun is not None and not _begun.is_entered:
        _begun.on_left(None)  # its block was never entered
    rank = distributed.rank
    gathered = distributed.gather((_own_process(rank), own_slot(distributed.local_rank)))
    follower: subprocess.Popen[bytes] | None = None
    begun: tuple[Path | None, str] = (None, "")
    problem: DetError | None = None
    if gathered is not None:
        try:
            folder, follower = _begin(given, gathered, length)
            begun = (folder, "")
        except DetError as error:
            problem, begun = error, (None, str(error))
    path, refusal = distributed.broadcast(begun)
    if problem is not None:
        raise problem
    if path is None:
        raise ConfigError(refusal)
    info = replace(read_run(str(path), str(paths.data_dir())), rank=rank)
    info = info.at(rank, distributed.local_rank)
    journal = Journal(info.folder.journal(rank))
    device = "cpu" if info.plan.slots[rank].kind == "cpu" else f"cuda:{distributed.local_rank}"
    journal.write(RankStarted(at=time.time(), pid=os.getpid(), backend="", device=device))
    managed.time_loop(info, rank, distributed.size, journal)
    context, counter = managed.counted_context(info, distributed, journal)
    if rank == 0:
        managed.read_events_of(info, journal, counter.note)
    printed = PrintedCopy(info.folder.output(rank))
    profiler, process = context.profiler, os.getpid()

    def leave(error: BaseException | None) -> None:
        if os.getpid() != process or journal.is_closed:  # a fork of the process with the run
            return
        has_failed = error is not None and (not isinstance(error, SystemExit) or error.code)
        with contextlib.ExitStack() as ending:  # all of it, also if the disk is full
            if follower is not None:
                ending.callback(_await_end, follower, info.folder.path)
            ending.callback(journal.close)
            ending.callback(printed.close)
            if has_failed:
                ending.enter_context(contextlib.suppress(OSError))  # the first error counts
            managed.end_timing()
            end_reading()
            profiler.close()
            if error is not None and has_failed:
                journal.write(record_of(info.plan, rank, error, counter, _cell_labels()))
            else:
                steps = counter.steps_completed
                journal.write(RunEnded(at=time.time(), reason="stopped", steps_completed=steps))

    context = replace(context, on_left=leave, is_over=lambda: journal.is_closed)
    _begun = context
    return context


def is_offline() -> bool:
    """Whether the environment forbids to look for a master."""
    return os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0")


def _begin(
    given: ByHand, ranks: list[tuple[RankProcess, SlotView]], length: Length
) -> tuple[Path, subprocess.Popen[bytes] | None]:
    """Write the folder of a run, and begin it; return the folder and the follower."""
    config = _config(given, length)
    key = secrets.token_hex(16)
    data_dir = paths.data_dir()
    folder = unmanaged_runs(data_dir) / key
    folder.mkdir(mode=0o700, parents=True)
    run = RunDir(folder)
    create_page(run.control)
    create_evidence_page(run.evidence, len(ranks))
    request = StartUnmanaged(
        key=key,
        resume=given.resume,
        started_at=time.time(),
        host=ranks[0][0].host,
        slots=[slot for _, slot in ranks],
        ranks=[
            process.model_copy(update={"output_file": str(run.output(process.rank))})
            for process, _ in ranks
        ],
        config=config.to_document(),
        capsule=Capsule(entrypoint=UNMANAGED, sources=""),
        python=sys.executable,
        cwd=os.getcwd(),
    )
    paths.write_private(request_file(folder), request.model_dump_json())
    paths.write_private(sources_file(folder), json.dumps(_sources()))
    reason = "as you asked"
    if not (given.offline or is_offline()):
        follower, announced = _start_follower(folder)
        if announced.result == "began":
            _tell(f"experiment {announced.experiment_id}, {given.name!r}", read_plan(folder))
            return folder, follower
        if announced.result == "refused":
            shutil.rmtree(folder, ignore_errors=True)
            raise Conflict(announced.text)
        reason = announced.text
    paths.write_private(run.plan, _offline_plan(given, request, config).model_dump_json())
    name = _NOT_IN_NAMES.sub("-", config.name)[:60]
    folder = folder.rename(_made(offline_runs(data_dir)) / f"{name}-{key[:8]}")
    _tell(f"{given.name!r}, offline ({reason})", read_plan(folder))
    print(f"det_jupyter: {_sync_line(folder)} takes it in when it is over", file=sys.stderr)
    return folder, None


def read_plan(folder: Path) -> GangPlan:
    """Return the plan of a run that has begun."""
    return GangPlan.model_validate_json(RunDir(folder).plan.read_bytes())


def _tell(what: str, plan: GangPlan) -> None:
    steps = plan.steps_completed
    begins = f"goes on after {steps} steps" if plan.checkpoint is not None else "begins"
    print(f"det_jupyter: {what}, {begins}", file=sys.stderr)


def _sync_line(folder: Path) -> str:
    reader = NOTEBOOK if "ipykernel" in sys.modules else SHELL
    return f"`{reader.experiment} sync {folder}`"


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _config(given: ByHand, length: Length) -> ExperimentConfig:
    """Return the configuration that stands for a run.

    Raises:
        ConfigError: An argument is wrong.
    """
    document: dict[str, Any] = {
        "name": given.name,
        "labels": [UNMANAGED, *(each for each in given.labels if each != UNMANAGED)],
        "entrypoint": UNMANAGED,
        "hyperparameters": {
            name: {"type": "const", "val": value} for name, value in (given.hparams or {}).items()
        },
        "searcher": {
            "name": "single",
            "metric": given.metric,
            "smaller_is_better": given.smaller_is_better,
            "max_length": {length.unit: length.amount},
        },
        "resources": {"slots_per_trial": 0},
        "max_restarts": 0,
    }
    if given.checkpoint_storage is not None:
        storage = str(given.checkpoint_storage)
        if is_in_bucket(storage):
            raise ConfigError(
                f"core.init: checkpoint_storage: got {storage!r}, expected a folder: no agent "
                "uploads the checkpoints of a run that is started by hand"
            )
        document["checkpoint_storage"] = {
            "type": "directory",
            "container_path": os.path.abspath(storage),
        }
    try:
        return parse_config(document, default_seed=0)
    except ConfigError as error:
        raise ConfigError([_of_argument(each) for each in error.problems]) from None


def _of_argument(problem: Problem) -> Problem:
    """Return a problem of the configuration as one of an argument of `core.init`."""
    path = problem.path.removeprefix("searcher.").removesuffix(".val")
    return replace(problem, path=f"core.init: {path.replace('hyperparameters', 'hparams')}")


def _offline_plan(given: ByHand, request: StartUnmanaged, config: ExperimentConfig) -> GangPlan:
    length = config.searcher.max_length
    assert length is not None
    return GangPlan(
        allocation_id="0.0.1",
        experiment_id=0,
        trial_id=0,
        run=1,
        python=request.python,
        cwd=request.cwd,
        slots=request.slots,
        agent_ids=[f"{UNMANAGED}@{request.host}"] * len(request.slots),
        config=request.config,
        hparams=dict(given.hparams or {}),
        seed=config.reproducibility.experiment_seed,
        capsule=request.capsule,
        checkpoint=latest_offline(paths.data_dir(), config.name) if given.resume else None,
        target=length,
    )


def _start_follower(folder: Path) -> tuple[subprocess.Popen[bytes], Announcement]:
    with open(paths.log_dir() / "unmanaged.log", "ab", opener=paths.private_opener) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", FOLLOWER, str(folder), "--live"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # an interrupt from the terminal is not for it
            cwd=paths.data_dir(),
            env=without_run(os.environ),
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    except BaseException:  # an interrupt; the follower ends what it may have begun
        _close_pipe(process)
        raise
    announced = Announcement.model_validate_json(line) if line else None
    if announced is not None and announced.result == "began":
        return process, announced
    process.communicate()  # it ends
    if announced is not None:
        return process, announced
    text = f"the follower has ended with exit status {process.returncode}; see {log.name}"
    return process, Announcement(result="offline", text=text)


def _await_end(follower: subprocess.Popen[bytes], folder: Path) -> None:
    assert follower.stdout is not None
    _close_pipe(follower)
    try:
        if follower.wait(_SENT_S):
            print(f"det_jupyter: {_sync_line(folder)} sends the rest of the run", file=sys.stderr)
    except subprocess.TimeoutExpired:
        print("det_jupyter: the end of the run is still being sent", file=sys.stderr)
    follower.stdout.close()


def _close_pipe(follower: subprocess.Popen[bytes]) -> None:
    """End the run for its follower; a byte says it, as forks may hold the pipe open."""
    assert follower.stdin is not None
    with contextlib.suppress(BrokenPipeError), follower.stdin as pipe:  # it has ended before
        pipe.write(b"\n")


def _own_process(rank: int) -> RankProcess:
    own = ProcessIdentity.of(os.getpid())
    return RankProcess(
        rank=rank, pid=own.pid, birth=own.birth, host=own.host, connection_file="", output_file=""
    )


def _sources() -> dict[str, dict[str, str]]:
    """Return the source of the script that runs, as a capsule has it; {} if there is none."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    with contextlib.suppress(OSError, UnicodeDecodeError, TypeError):
        if os.path.getsize(path or "") <= _MOST_SOURCE:
            source = Path(path or "").read_text(encoding="utf-8")
            return {str(path): {"label": os.path.basename(path or ""), "source": source}}
    return {}


def _cell_labels() -> dict[str, str]:
    """Return the labels of a notebook's cells, by file name; {} in a script."""
    if (ipython := sys.modules.get("IPython")) is None:
        return {}
    files: Callable[..., Any] = getattr(ipython, "get_ipython", lambda: None)
    cells = getattr(getattr(files(), "compile", None), "_filename_map", {})
    return {name: f"Cell In[{number}]" for name, number in cells.items()}
