"""Torch's hooks, put into the test's process and taken out again."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset, dataloader

from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.core import RecordList
from det_jupyter.core.timings import savers, torch_hooks
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.clocks import HostClock


def only_now(name: str, do: Any, *, has: str) -> None:
    """Stand in for `after_import`, which waits for modules beyond the end of a test."""
    if name == "torch":
        do()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopTimings]:
    base: Any = dataloader._BaseDataLoaderIter
    for owner, name in ((torch.autograd, "backward"), (base, "__next__"), (torch, "save"),
                        (torch.serialization, "save")):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(optimizers, name, OrderedDict())
    for module in (torch_hooks, savers):
        monkeypatch.setattr(module, "after_import", only_now)
    loop = LoopTimings(RecordList(), open_clock=torch_hooks.clock_of)
    torch_hooks.watch(loop)
    yield loop
    loop.close()


def test_each_call_of_a_loop_is_a_part_of_its_batches(loop: LoopTimings) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (batch,) in DataLoader(TensorDataset(torch.ones(4, 2)), 1):
        model(batch).sum().backward()
        optimizer.step()
    torch.save(model.state_dict(), BytesIO())
    loop.flush()
    (record,) = loop._sink.records  # type: ignore[attr-defined]  # a RecordList
    assert isinstance(record, StepTimes)
    assert (record.first, record.batches) == (2, 3)
    assert {name: part.num for name, part in record.parts.items()} == {
        "dataloader_next": 3, "forward": 3, "backward": 3, "optimizer": 3, "checkpoint": 1,
        "rest": 3,
    }  # fmt: skip


@pytest.mark.usefixtures("loop")
def test_what_is_timed_keeps_its_names() -> None:
    base: Any = dataloader._BaseDataLoaderIter
    assert torch.autograd.backward.__module__ == "torch.autograd"
    assert base.__next__.__qualname__ == "_BaseDataLoaderIter.__next__"
    assert torch.autograd.backward.__doc__
    for function in (torch.autograd.backward, torch.save):
        assert pickle.loads(pickle.dumps(function)) is function


class Replica(nn.parallel.DistributedDataParallel):
    """Stands for a replica of a gang that there is not."""

    def __init__(self, module: nn.Module) -> None:
        nn.Module.__init__(self)
        self.module = module

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.module(inputs)


def test_replicas_are_found_where_they_are_and_forgotten_when_they_are_gone() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    trained = nn.Linear(2, 2)
    model = nn.Sequential(Replica(trained), Replica(frozen), nn.Linear(2, 1))
    hooked: list[Any] = []
    loop: Any = SimpleNamespace(replicas=[], within_backward=hooked.append)
    meet = torch_hooks._Replicas(loop).find
    for _ in range(2):  # the same once more
        meet(model)
        assert [has() for has in loop.replicas] == [model[0]]
    meet(nn.Sequential(model[0], nn.Linear(2, 2)))
    assert len(loop.replicas) == 1
    model(torch.ones(1, 2)).sum().backward()
    assert [each is trained.bias for each in hooked] == [True]
    del model[0], hooked[:]
    meet(nn.Linear(1, 1))
    assert loop.replicas == []


def test_parameters_of_the_host_are_timed_by_its_clock() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert isinstance(torch_hooks.clock_of(optimizer), HostClock)
    assert isinstance(torch_hooks.clock_of(None), HostClock)
