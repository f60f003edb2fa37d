"""Which part's end is that of the gang: written out for every pair of kinds."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from det_jupyter.contract.messages import AllocationState, GangExited
from det_jupyter.contract.messages.device_faults import DeviceFault
from det_jupyter.contract.run.journal import RankFailure
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.rules.gang_ends import ends_by_others, merge_ends

RANKS = {"a": 0, "b": 1, "c": 2}


def end_of(agent_id: str, kind: str, at: float = 60.0) -> GangExited:
    rank = RANKS[agent_id]
    kinds: dict[str, dict[str, Any]] = {
        "own": {"exit_codes": {rank: 1}, "first_ended": rank},
        "echo": {"exit_codes": {rank: 1}, "first_ended": rank},
        "abort": {"exit_codes": {rank: -6}, "first_ended": rank},
        "signal": {"exit_codes": {rank: -11}, "first_failed": rank},
        "clean": {"exit_codes": {rank: 0}, "first_ended": rank},
        "killed": {"exit_codes": {rank: -9}, "killed": True},
        "lost": {"exit_codes": {rank: None}, "lost": True},
        "not started": {"exit_codes": {rank: None}, "error": "no fork server"},
        "not saved": {"exit_codes": {rank: -9}, "not_saved": True, "killed": True},
        "lost, not saved": {"exit_codes": {rank: None}, "not_saved": True, "lost": True},
    }
    return GangExited.model_validate({"allocation_id": "1.1.1", "at": at, **kinds[kind]})


def allocation_of(ends: dict[str, GangExited], **facts: Any) -> Allocation:
    parts = [
        GangPart(agent_id=agent, ranks=[RANKS[agent]], exited=end) for agent, end in ends.items()
    ]
    running = {"id": "1.1.1", "run": 1, "queued_at": 0.0, "state": AllocationState.RUNNING}
    return Allocation.model_validate(running | facts | {"parts": parts})


def cause(*kinds: str, is_stopping: bool = False, times: tuple[float, ...] = (60, 61, 62)) -> str:
    """Return the kind of the part whose end is that of a gang with parts of these kinds."""
    agents = list(RANKS)[: len(kinds)]
    ends = {
        agent: end_of(agent, kind, at)
        for agent, kind, at in zip(agents, kinds, times, strict=False)
    }
    allocation = allocation_of(
        ends,
        state=AllocationState.STOPPING if is_stopping else AllocationState.RUNNING,
        failures=[
            RankFailure(
                at=end.at, rank=RANKS[agent], error="E", traceback="", is_echo=kind == "echo"
            )
            for (agent, end), kind in zip(ends.items(), kinds, strict=True)
            if kind in ("own", "echo")
        ],
    )
    merged = merge_ends(allocation)
    return next(kind for agent, kind in zip(agents, kinds, strict=True)
                if ends[agent].at == merged.at)  # fmt: skip


# From the strongest: each is the cause beside all that follow it.
RUNNING = ["own", "lost", "not started", "echo", "killed"]
LEAVING = ["own", "lost", "killed", "not started", "echo"]


@pytest.mark.parametrize(
    ("order", "is_stopping"), [(RUNNING, False), (LEAVING, True)], ids=["running", "leaving"]
)
def test_of_two_parts_the_stronger_cause_counts_whenever_it_came(
    order: list[str], is_stopping: bool
) -> None:
    for stronger, weaker in permutations(order, 2):
        if order.index(stronger) < order.index(weaker):
            assert cause(stronger, weaker, is_stopping=is_stopping) == stronger
            assert cause(weaker, stronger, is_stopping=is_stopping) == stronger


@pytest.mark.parametrize(
    ("kind", "counts_as"),
    [
        ("signal", "own"),
        ("not saved", "own"),
        ("abort", "echo"),  # NCCL and gloo abort a process that has lost a peer
        ("clean", "echo"),
        ("lost, not saved", "lost"),
    ],
)
def test_other_kinds_count_as_these(kind: str, counts_as: str) -> None:
    for other in RUNNING:
        first = cause(kind, other, times=(60, 61))
        last = cause(other, kind, times=(60, 61))
        if other == counts_as:  # the earlier
            assert (first, last) == (kind, other)
        else:
            is_stronger = RUNNING.index(counts_as) < RUNNING.index(other)
            assert first == last == (kind if is_stronger else other)


def test_a_merged_end_has_what_all_parts_have() -> None:
    fault = DeviceFault(index=3, at=60.5, xid=79)
    first = end_of("a", "own", 60.0)
    last = end_of("b", "not saved", 61.0).model_copy(update={"faults": {1: fault}})
    merged = merge_ends(allocation_of({"b": last, "a": first}))
    assert (merged.at, merged.killed) == (60.0, False)
    assert list(merged.exit_codes.items()) == [(0, 1), (1, -9)]
    assert merged.faults == {1: fault}
    assert merged.not_saved


def test_the_end_of_an_only_part_is_that_of_the_gang() -> None:
    end = end_of("a", "killed")
    assert merge_ends(allocation_of({"a": end})) is end


@pytest.mark.parametrize(
    ("kind", "is_by_others"),
    [("own", False), ("echo", True), ("abort", True), ("signal", True), ("lost", True)],
)
def test_ranks_may_save_unless_the_others_have_ended_by_an_error_of_the_trial(
    kind: str, is_by_others: bool
) -> None:
    end = end_of("a", kind)
    failures = [
        RankFailure(at=end.at, rank=0, error="E", traceback="", is_echo=kind == "echo")
        for _ in range(kind in ("own", "echo"))
    ]
    allocation = allocation_of({"a": end}, failures=failures)
    assert ends_by_others(allocation, allocation.parts[0]) is is_by_others
