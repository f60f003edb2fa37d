"""How long a gang waits for a fork server, and how its ranks are started then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.starting import launcher
from det_jupyter.agent.starting.rank_processes import RankProcesses, StartFailed
from det_jupyter.contract.messages import (
    ForkRefused,
    GangNetwork,
    RankSpec,
    SlotView,
    ZygoteReady,
)
from det_jupyter.errors import LaunchError
from tests.integration.agent_support import make_plan

READY = ZygoteReady(protocol=1, version="1", warmup_s=1.0)


def wait(
    monkeypatch: pytest.MonkeyPatch,
    times: Iterable[float],
    *,
    frozen: Iterable[bool] = (),
    act: Callable[[asyncio.Event, asyncio.Future[ZygoteReady]], object] = lambda *_: None,
) -> tuple[ZygoteReady | None, list[float]]:
    """Return what is waited for, and the times that are left over.

    Args:
        times: Of the clock, each time that it is read.
        frozen: Whether the fork server is stopped, each time that it is looked at; else it is not.
        act: Called with the order to end and with the readiness, before the wait begins.
    """
    clock, looks = iter(times), iter(frozen)
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(launcher, "_CHECK_S", 0.001)
    monkeypatch.setattr(launcher, "is_frozen", lambda pid: next(looks, False))

    async def run() -> ZygoteReady | None:
        end, answer = asyncio.Event(), asyncio.get_running_loop().create_future()
        act(end, answer)

        async def ready() -> ZygoteReady:
            found: ZygoteReady = await answer
            return found

        zygote: Any = SimpleNamespace(pid=7, ready=ready)
        found = await launcher._readiness(zygote, end)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    return asyncio.run(run()), list(clock)


def test_a_gang_waits_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = launcher._WARMUP_S
    times = [100.0, 100.0, 101.0, 100.0 + limit - 1, 100.0 + limit, 999.0]
    assert wait(monkeypatch, times) == (None, [999.0])


def test_a_gang_waits_for_no_fork_server_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = [True, False, True, True]  # a debugger stops it for an instant
    assert wait(monkeypatch, [1.0] * 6, frozen=frozen) == (None, [1.0])


def test_a_gang_that_is_to_end_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait(monkeypatch, [1.0] * 3, act=lambda end, _: end.set()) == (None, [1.0])


def test_a_fork_server_that_is_ready_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wait(monkeypatch, [1.0] * 3, act=lambda _, answer: answer.set_result(READY))
    assert found == (READY, [1.0])


SPECS = [RankSpec.model_construct(network=None)]
OVER_COMPUTERS = [RankSpec.model_construct(network=GangNetwork(addresses=[], interface="eth0"))]
FORKED = RankProcesses(pids={0: 7}, exits=asyncio.Queue(), note="forked")


class Starting:
    """The fork servers and the spawner of a launcher; a gang is started by it.

    Args:
        ready: What the fork server tells of itself; None: nothing.
        answer: What it answers to a request.
        problem: Why it refuses requests.
        specs: Of the ranks.
        ends: Whether the end is ordered while the ranks are forked.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        ready: ZygoteReady | None = READY,
        answer: RankProcesses | str = FORKED,
        problem: str = "",
        specs: list[RankSpec] = SPECS,
        *,
        ends: bool = False,
    ) -> None:
        self.pid, self.problem = 7, problem
        self.notes: list[str] = []
        self.num_attempts = self.num_forks = 0
        self._ready, self._answer, self._specs, self._ends = ready, answer, specs, ends
        self._end_ordered = asyncio.Event()
        monkeypatch.setattr(launcher, "_WARMUP_S", 0.0 if ready is None else 60.0)
        monkeypatch.setattr(launcher, "is_frozen", lambda pid: False)

    async def get(self, python: str) -> Any:
        return self

    async def ready(self) -> ZygoteReady:
        if self._ready is None:
            await asyncio.Event().wait()
        assert self._ready is not None
        return self._ready

    async def fork_gang(self, specs: list[RankSpec]) -> RankProcesses | ForkRefused:
        self.num_forks += 1
        if self._ends:
            self._end_ordered.set()
        if isinstance(self._answer, str):
            return ForkRefused(allocation_id="1.1.1", reason=self._answer)
        return self._answer

    def spawn_gang(self, specs: list[RankSpec], *, note: str) -> RankProcesses:
        self.notes.append(note)
        return FORKED

    def _make_specs(self) -> list[RankSpec]:
        self.num_attempts += 1
        return self._specs

    def launch(self, *, kind: str = "cpu", is_ordered: bool = False) -> RankProcesses | None:
        """Start a gang."""
        slots = [SlotView.model_validate({"id": 0, "kind": kind, "index": 0, "name": "any"})]
        played: Any = self
        if is_ordered:
            self._end_ordered.set()
        starting = launcher.Launcher(played, played).launch(
            make_plan("1.1.1", [], slots=slots), self._make_specs, self._end_ordered
        )
        return asyncio.run(starting)


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ({}, None),
        ({"ready": READY.model_copy(update={"unsafe": "a thread runs"})}, "a thread runs"),
        ({"problem": "the zygote died"}, "the zygote died"),
        ({"answer": "no memory"}, "no memory"),
        ({"ready": None}, "the zygote was not ready after 0 s"),
    ],
)
def test_ranks_that_cannot_be_forked_are_started_afresh_and_why_is_noted(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: dict[str, Any],
    note: str | None,
) -> None:
    starting = Starting(monkeypatch, **how)
    assert starting.launch() is FORKED
    assert starting.notes == ([] if note is None else [f"started afresh: {note}"])
    assert starting.num_forks == (1 if not how or "answer" in how else 0)
    assert starting.num_attempts == starting.num_forks + len(starting.notes)  # each has a store
    told = [f"allocation=1.1.1: ranks are started afresh: {note}"] if note else []
    assert [record.getMessage() for record in caplog.records] == told


@pytest.mark.parametrize("is_refused", [True, False])
def test_of_a_gang_whose_end_was_ordered_no_other_attempt_is_made(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    before = Starting(monkeypatch)
    assert before.launch(is_ordered=True) is None
    assert (before.num_forks, before.notes) == (0, [])
    during = Starting(monkeypatch, answer="no memory" if is_refused else FORKED, ends=True)
    assert during.launch() is (None if is_refused else FORKED)  # ranks that exist are followed
    assert (during.num_forks, during.notes) == (1, [])


def test_ranks_on_several_computers_are_not_started_afresh_by_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starting = Starting(monkeypatch, answer="no memory", specs=OVER_COMPUTERS)
    with pytest.raises(StartFailed, match=r"the ranks on .* did not start: no memory$"):
        starting.launch()
    assert starting.notes == []


@pytest.mark.parametrize(
    ("kind", "cuda", "starts"),
    [("cuda", None, False), ("cuda", "12.8", True), ("cpu", None, True), ("cpu", "12.8", True)],
)
def test_a_torch_without_cuda_starts_no_ranks_on_gpus(
    monkeypatch: pytest.MonkeyPatch, kind: str, cuda: str | None, starts: bool
) -> None:
    ready = READY.model_copy(update={"torch_cuda": cuda})
    starting = Starting(monkeypatch, ready)
    if starts:
        assert starting.launch(kind=kind) is FORKED
    else:
        with pytest.raises(LaunchError, match="is built without CUDA but the slots are GPUs"):
            starting.launch(kind=kind)
