"""What a rank does from its start to its end; the training itself is played."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from det_jupyter import core, pytorch
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, RankSpec
from det_jupyter.contract.run.journal import (
    Notice,
    RankFailure,
    RankStarted,
    Record,
    RunEnded,
    parse_line,
)
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.errors import ConfigError, InvalidHP
from det_jupyter.rank import rank as module
from det_jupyter.rank import rendezvous
from det_jupyter.rank.endings import ExitedWith
from det_jupyter.rank.rank import RankProgram, run_rank
from tests.unit.rank.rank_specs import make_spec


class World:
    """All that a rank calls: what was done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.entrypoint: Any = type("Trial", (), {})
        self.reason: str | Exception = "completed"
        self.joined: list[dict[str, Any]] = []
        self.namespace: Callable[[], Mapping[str, Any]] = dict
        self.lifelines: list[tuple[float, Any]] = []
        self.processes: list[Any] = []
        self.is_chief = True
        self.num_run = 0

        def note(what: str) -> Callable[..., None]:
            return lambda *_, **__: self.done.append(what)

        monkeypatch.setattr(module, "prepare_python", note("prepare"))
        monkeypatch.setattr(module, "KernelServer", self._kernel)
        monkeypatch.setattr(module, "watch_lifeline", self._watch)
        monkeypatch.setattr(module, "give_evidence", note("evidence"))
        monkeypatch.setattr(module, "left_out", lambda spec: ["LONG"])
        monkeypatch.setattr(module, "load_entrypoint", lambda *_: self.entrypoint)
        monkeypatch.setattr(rendezvous, "limit_threads", note("threads"))
        monkeypatch.setattr(rendezvous, "keep_group", note("keep group"))
        monkeypatch.setattr(rendezvous, "offer_group", lambda *_: "join")
        monkeypatch.setattr(rendezvous, "join", self._join)
        monkeypatch.setattr(rendezvous, "use_device", note("device"))
        monkeypatch.setattr(core, "managed_context", lambda *_: "the context")
        monkeypatch.setattr(core, "counted_context", lambda *_: ("the context", self._counter()))
        monkeypatch.setattr(core, "set_current", note("current"))
        monkeypatch.setattr(core, "set_process", self.processes.append)
        monkeypatch.setattr(core, "time_loop", note("time"))
        monkeypatch.setattr(core, "read_written_events", note("events"))
        monkeypatch.setattr(pytorch, "TrialRun", self._run)
        monkeypatch.setattr(module, "FunctionRun", self._run)
        monkeypatch.setattr(module, "ProgramRun", self._run)
        monkeypatch.setattr(module, "CommandRun", self._run)
        monkeypatch.setattr(module.multiprocessing, "active_children", lambda: [])  # type: ignore[attr-defined]
        monkeypatch.setattr(os, "chdir", lambda folder: self.done.append(f"chdir {folder}"))
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def _counter(self) -> Any:
        return SimpleNamespace(note=None)

    def _kernel(self, file: Path, sockets: str, namespace: Callable[[], Any]) -> Any:
        self.namespace = namespace
        self.done.append(f"kernel {file.name} {sockets.rpartition('/')[2]}")
        return SimpleNamespace(start="start", start_soon="start soon")

    def _watch(self, spec: RankSpec, *, after_s: float, then: Any) -> None:
        self.lifelines.append((after_s, then))

    def _join(self, place: Any, backend: str, device: Any, **options: Any) -> Any:
        self.joined.append({"backend": backend, **options})
        return SimpleNamespace(rank=place.rank, size=place.world_size, is_chief=self.is_chief)

    def _run(self, *arguments: Any, **options: Any) -> Any:
        self.done.append("run")
        self.given = (arguments, options)

        def run() -> str:
            self.num_run += 1
            if isinstance(self.reason, Exception):
                raise self.reason
            return self.reason

        return SimpleNamespace(
            run=run, steps_completed=7, trained=7, trial=None, live=lambda: {"loss": 0.5}
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def records(folder: Path, rank: int = 0) -> list[Record]:
    lines = (folder / f"journal-{rank}").read_bytes().splitlines()
    return [parse_line(line) for line in lines]


def test_a_function_is_not_called_to_measure_batches(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train() -> None: ...

    world.entrypoint = train
    monkeypatch.setenv("DET_JUPYTER_REHEARSAL", "memory=1")
    with pytest.raises(ConfigError, match="train is a function, which would train to its end"):
        RankProgram(make_spec(tmp_path)).live()
    assert "run" not in world.done


def test_a_rank_that_trains_a_class_journals_its_start_and_its_end(
    world: World, tmp_path: Path
) -> None:
    spec = make_spec(tmp_path, rank=1, num_ranks=2)
    rank = RankProgram(spec)
    assert rank.live() == 0
    started, notice, ended = records(tmp_path, 1)
    assert isinstance(started, RankStarted)
    assert (started.pid, started.backend, started.device) == (os.getpid(), "gloo", "cpu")
    assert isinstance(notice, Notice)
    assert notice.text == "the environment variable LONG is left out: it would be too long"
    assert isinstance(ended, RunEnded)
    assert (ended.reason, ended.steps_completed) == ("completed", 7)
    assert world.done == [
        "prepare", "kernel kernel-1.json 1", "evidence", "threads", f"chdir {tmp_path}",
        "keep group", "current", "run",
    ]  # fmt: skip
    ((after_s, then),) = world.lifelines
    assert (after_s, then) == (2.0, "start")
    assert world.joined == [
        {
            "backend": "gloo",
            "store": spec.store,
            "secret": bytes.fromhex(spec.secret),
            "network": None,
        }
    ]
    assert world.given == ((world.entrypoint, "the context", "start soon"), {})
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize("is_chief", [True, False])
def test_a_function_is_called_on_each_rank_and_one_reads_its_files(
    world: World, tmp_path: Path, is_chief: bool
) -> None:
    def train() -> None:
        """Train."""

    world.entrypoint, world.is_chief, world.reason = train, is_chief, "preempted"
    spec = make_spec(tmp_path, "train")
    torch.manual_seed(spec.plan.seed + 1)
    assert RankProgram(spec).live() == 0
    assert torch.initial_seed() == spec.plan.seed  # the trial's, as of a class
    assert world.given[0][0] is train
    assert world.done.index("current") < world.done.index("run")
    assert "keep group" not in world.done  # one rank alone has no group
    assert [what for what in world.done if what in ("time", "events", "run")] == (
        ["time", "events", "run"] if is_chief else ["time", "run"]
    )
    assert isinstance(last := records(tmp_path)[-1], RunEnded)
    assert last.reason == "preempted"


PROGRAM, LAUNCHED = "python3 train.py", "python3 -m det_jupyter.launch.torch_distributed train.py"


@pytest.mark.parametrize(
    ("entrypoint", "rank", "num_ranks", "done"),
    [
        (PROGRAM, 0, 1, ["time", "events", "run"]),
        (PROGRAM, 0, 2, ["events", "run"]),
        ("sh -c true", 0, 2, ["run"]),
    ],
)
def test_the_end_of_a_program_is_left_to_the_agent(
    world: World,
    tmp_path: Path,
    entrypoint: str,
    rank: int,
    num_ranks: int,
    done: list[str],
) -> None:
    spec = make_spec(tmp_path, entrypoint, rank=rank, num_ranks=num_ranks)
    assert RankProgram(spec).live() == 0
    assert not [each for each in records(tmp_path, rank) if isinstance(each, RunEnded)]
    assert [what for what in world.done if what in ("time", "events", "run")] == done
    assert world.joined == []
    assert str(tmp_path) not in sys.path[:1]
    assert len(world.processes) == (entrypoint == PROGRAM)
    assert world.num_run == 1
    assert ("evidence" in world.done) is (spec.plan.entrypoint.per == "slot")


def test_a_console_has_the_variables_of_the_work_and_of_the_rank(
    world: World, tmp_path: Path
) -> None:
    rank = RankProgram(make_spec(tmp_path, rank=1, num_ranks=2))
    names = {"rank", "world_size", "device", "det_stack"}
    assert rank._namespace().keys() == names
    rank.live()
    found = world.namespace()
    assert found.keys() == names | {"loss"}
    assert (found["rank"], found["world_size"], found["loss"]) == (1, 2, 0.5)
    assert found["det_stack"] == rank.names.main_stack


class Left(BaseException):
    """The process has ended with this code."""


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of what is done at the end of the process."""
    done: list[Any] = []

    def leave_copy(error: BaseException | None) -> NoReturn:
        done.append(("copy", error))
        raise Left

    def end(code: int) -> NoReturn:
        done.append(code)
        raise Left

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(module, "leave_copy", leave_copy)
    monkeypatch.setattr(module, "finish_failed", lambda error, code: done.append(("finish", code)))
    return done


class Program(SimpleNamespace):
    """A program, as far as the end of its rank is concerned."""


@pytest.mark.parametrize(
    ("error", "work", "expected"),
    [
        (None, None, [0]),
        (ValueError("no"), None, [1]),
        (ExitedWith("no", 5), Program(trained=1, trial=None), [("finish", 5), 5]),
        (KeyboardInterrupt(), None, [1]),
    ],
)
def test_a_rank_exits_with_the_code_of_its_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave: list[Any],
    error: BaseException | None,
    work: Any,
    expected: list[Any],
) -> None:
    def live(rank: RankProgram) -> int:
        rank.work = work
        if error is not None:
            raise error
        return 0

    killed: list[str] = []
    child = SimpleNamespace(kill=lambda: killed.append("worker"))
    monkeypatch.setattr(module.multiprocessing, "active_children", lambda: [child])  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "ProgramRun", Program)
    monkeypatch.setattr(RankProgram, "live", live)
    with pytest.raises(Left):
        run_rank(make_spec(tmp_path))
    assert leave == expected
    assert killed == ["worker"]
    assert len(records(tmp_path)) == (error is not None)


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_a_process_that_the_program_has_forked_is_no_rank(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave: list[Any],
    error: BaseException | None,
) -> None:
    pids = iter([1, 2])
    monkeypatch.setattr(os, "getpid", lambda: next(pids))

    def live(rank: RankProgram) -> int:
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(RankProgram, "live", live)
    with pytest.raises(Left):
        run_rank(make_spec(tmp_path))
    assert leave == [("copy", error)]
    assert records(tmp_path) == []


def test_hyperparameters_that_cannot_work_end_the_trial_without_a_failure(
    world: World, tmp_path: Path
) -> None:
    rank = RankProgram(make_spec(tmp_path))
    assert rank.fail(InvalidHP("lr is too large")) == 1
    rank.work = world._run()
    assert rank.fail(InvalidHP("lr is too large")) == 1
    first, second = records(tmp_path)
    assert isinstance(first, RunEnded)
    assert isinstance(second, RunEnded)
    assert (first.reason, first.steps_completed) == ("invalid_hp", 0)
    assert "lr is too large" in first.message
    assert second.steps_completed == 7


@pytest.mark.parametrize(
    ("printed", "blank"), [("", False), ("epoch 1\n", False), (" 50%|###", True)]
)
def test_a_traceback_begins_on_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], printed: str, blank: bool
) -> None:
    rank = RankProgram(make_spec(tmp_path))
    (tmp_path / "output-0").write_text(printed)
    assert rank.fail(ValueError("no")) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("\n") is blank
    assert "ValueError: no" in shown
    assert isinstance(failure := records(tmp_path)[-1], RankFailure)
    assert (printed.strip() in failure.traceback) is True


def test_a_thread_that_fails_is_told_and_the_rank_trains_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = RankProgram(make_spec(tmp_path, rank=1, num_ranks=2))

    def ended(error: BaseException | None, name: str | None = "loader") -> None:
        thread = None if name is None else threading.Thread(name=name)
        kind = type(error) if error is not None else ValueError
        rank._report_thread(threading.ExceptHookArgs((kind, error, None, thread)))

    for error in (SystemExit(), None):
        ended(error)
    assert records(tmp_path, 1) == []
    ended(ValueError("no"))
    ended(ValueError("no"), None)
    first, second = records(tmp_path, 1)
    assert isinstance(first, Notice)
    assert first.text.startswith("rank 1: the thread 'loader' ended with ValueError: no")
    assert isinstance(second, Notice)
    assert second.text.startswith("rank 1: the thread 'a thread' ended with ValueError: no")
    assert "ValueError: no" in capsys.readouterr().err
    for _ in range(30):
        ended(ValueError("no"))
    assert len(records(tmp_path, 1)) == 20


def test_labels_of_cells_are_known_before_their_code_runs(world: World, tmp_path: Path) -> None:
    cells = {"<cell 3>": {"label": "Cell In[3]", "source": "def f(): raise ValueError\n"}}
    sources = BlobStore(tmp_path / "blobs").put(json.dumps(cells).encode())
    capsule = Capsule(entrypoint="Trial", payload="a" * 64, sources=sources)
    rank = RankProgram(make_spec(tmp_path, capsule=capsule))
    rank.live()
    scope: dict[str, Any] = {}
    exec(compile("def f(): raise ValueError('no')", "<cell 3>", "exec"), scope)
    try:
        scope["f"]()
    except ValueError as error:
        rank.fail(error)
    assert isinstance(failure := records(tmp_path)[-1], RankFailure)
    assert "Cell In[3]" in failure.traceback


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_rank_alone_has_lost_no_other_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_ranks: int
) -> None:
    monkeypatch.setattr("det_jupyter.core.failures._ECHO_DELAY_S", 0.0)
    RankProgram(make_spec(tmp_path, num_ranks=num_ranks)).fail(PeerLost("closed by peer"))
    assert isinstance(failure := records(tmp_path)[-1], RankFailure)
    assert failure.error.startswith("another rank is gone") is (num_ranks == 2)
