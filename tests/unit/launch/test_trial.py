"""A rank that trains a class of a module: what it connects, trains and journals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from det_jupyter import core, pytorch
from det_jupyter.contract.run.journal import RunEnded
from det_jupyter.core import managed
from det_jupyter.errors import ConfigError
from det_jupyter.launch import trial

MODULE = """
from det_jupyter.pytorch import PyTorchTrial

class Outer:
    class Net(PyTorchTrial): ...

class Net(PyTorchTrial): ...

number = 3
"""


class World:
    """A run of one or two ranks, of which nothing is real: what was done with it."""

    def __init__(self, reason: str = "completed") -> None:
        self.written: list[RunEnded] = []
        self.num_acknowledged = 0
        self.trained: list[tuple[type, Any]] = []
        self.distributed: Any = None
        self.backends: list[str] = []
        self.device = torch.device("cpu")
        self.devices: list[tuple[int, int]] = []
        self._reason = reason

    def at(self, rank: int, local_rank: int) -> Any:
        """Return the information for a rank, which has its device."""
        self.devices.append((rank, local_rank))
        return SimpleNamespace(device=self.device)

    @contextmanager
    def open(self, *, distributed: Any) -> Iterator[Any]:
        """Open the context of a rank."""
        self.distributed = distributed
        yield SimpleNamespace(
            distributed=SimpleNamespace(rank=1, local_rank=0),
            preempt=SimpleNamespace(acknowledge_preemption_signal=self._acknowledge),
            sink=SimpleNamespace(write=self.written.append),
        )

    def _acknowledge(self) -> None:
        self.num_acknowledged += 1

    def work(self, trial_class: type, context: Any) -> Any:
        """Return what trains the class."""
        self.trained.append((trial_class, context))
        return SimpleNamespace(run=lambda: self._reason, steps_completed=42)


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Return what makes a run that this process is a rank of."""
    (tmp_path / "det_trial_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "det_trial_module", raising=False)

    def make(reason: str = "completed", num_ranks: int = 1) -> World:
        world = World(reason)
        for name, value in (("WORLD_SIZE", num_ranks), ("RANK", 1), ("LOCAL_RANK", 0)):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(managed, "find_info", lambda: world)
        monkeypatch.setattr(core, "init", world.open)
        monkeypatch.setattr(pytorch, "TrialRun", world.work)
        monkeypatch.setattr(dist, "init_process_group", world.backends.append)
        monkeypatch.setattr(core.DistributedContext, "from_torch_distributed", lambda: "the ranks")
        return world

    return make


@pytest.mark.parametrize("reason", ["completed", "preempted"])
def test_a_class_is_trained_as_planned_and_how_that_ended_is_journaled(
    enter: Callable[..., World], reason: str
) -> None:
    world = enter(reason)
    assert trial.train(["det_trial_module:Outer.Net"]) == 0
    ((trained, context),) = world.trained
    assert (trained.__module__, trained.__qualname__) == ("det_trial_module", "Outer.Net")
    assert context.distributed.rank == 1
    assert isinstance(world.distributed, core.DistributedContext)  # of one rank
    assert world.backends == []
    (ended,) = world.written
    assert (ended.reason, ended.steps_completed) == (reason, 42)
    assert world.num_acknowledged == (reason == "preempted")


@pytest.mark.parametrize(("kind", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_several_ranks_meet_over_the_backend_of_their_devices(
    enter: Callable[..., World], monkeypatch: pytest.MonkeyPatch, kind: str, backend: str
) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    world = enter(num_ranks=2)
    world.device = torch.device(kind, 0)
    assert trial.train(["det_trial_module:Net"]) == 0
    assert (world.distributed, world.backends) == ("the ranks", [backend])
    assert chosen == ([world.device] if kind == "cuda" else [])
    assert world.devices == [(1, 0)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("det_trial_module:Gone", "det_trial_module has no Gone"),
        ("det_trial_module:Outer.Gone", "det_trial_module has no Gone"),
        ("det_trial_module:number", "det_trial_module:number is no class of PyTorchTrial"),
        ("det_trial_module:Outer", "det_trial_module:Outer is no class of PyTorchTrial"),
    ],
)
def test_what_is_no_trial_class_is_refused_by_name(
    enter: Callable[..., World], name: str, problem: str
) -> None:
    world = enter()
    with pytest.raises(ConfigError, match=f"--trial: {problem}"):
        trial.train([name])
    assert world.written == []


@pytest.mark.parametrize("words", [[], ["module"], ["m:C", "m:D"]])
def test_a_command_line_without_one_class_is_refused(
    enter: Callable[..., World], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    enter()
    assert trial.train(words) == 2
    assert "expected one MODULE:CLASS" in capsys.readouterr().err


def test_outside_of_experiments_no_class_is_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(managed, "find_info", lambda: None)
    assert trial.train(["m:C"]) == 2
    assert "in experiments only" in capsys.readouterr().err
