"""Ranks that are left have the whole state of a sharded model, as all have saved it together."""

from __future__ import annotations

import asyncio
import copy
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
import torch
from torch import nn

from det_jupyter.agent.tunnel.copies import HeldCopies
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import is_lost_peer
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.training_state import ModelStates
from det_jupyter.pytorch.training.shard_copies import CopyLost, ShardCopies
from tests.integration.parallel_ranks import RankRunner
from tests.integration.parallel_samples import FEATURES, Centered, Run


class Ended(Exception):
    """A rank ends here."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return the folder of a run with 3 ranks; files stand for the memory of the agent."""
    for rank in range(3):
        for number in range(2):
            RunDir(tmp_path).copy(rank, number).touch()
    return str(tmp_path)


def copies_of(
    distributed: DistributedContext, run: Run, folder: str, elsewhere: tuple[int, ...] = ()
) -> ShardCopies:
    return ShardCopies(distributed, [run.model], [run.optimizer], RunDir(Path(folder)), elsewhere)


def whole_state(distributed: DistributedContext, run: Run) -> ModelStates:
    """Return the state that a checkpoint has, on all ranks. Collective."""
    state = ModelStates(
        models=[parallel.model_state(run.model)],
        optimizers=[parallel.optimizer_state([run.model], run.optimizer)],
        exchanges=distributed.allgather(parallel.rank_state([run.model])),
    )
    return copy.deepcopy(distributed.broadcast(state))


def end_in_the_copy(memory: list[torch.Tensor], parts: list[torch.Tensor]) -> NoReturn:
    memory[0].copy_(parts[0])
    raise Ended


def survived(
    distributed: DistributedContext, folder: str, ends_in_copy: set[int], ends_before: set[int]
) -> Any:
    """Lose ranks in the third step; return whether the others have the state of the second."""
    run = Run(distributed, kind=Centered, sharding="fsdp")
    copies = copies_of(distributed, run, folder)
    expected = trained(copies, distributed, run)
    if distributed.rank in ends_before:
        distributed.close()
        return "ended"
    if ends_in(copies, distributed, is_lost=distributed.rank in ends_in_copy):
        return "ended"
    with pytest.raises(CopyLost, match="has left no copy"):
        copies.states(3)
    return same(copies.states(2), expected)


def trained(copies: ShardCopies, distributed: DistributedContext, run: Run) -> ModelStates:
    """Train three steps, of which two are copied; return the state after the second."""
    for steps in range(3):
        copies.note(steps)
        if steps == 2:
            expected = whole_state(distributed, run)
        run.train(1)
    return expected


def ends_in(copies: ShardCopies, distributed: DistributedContext, *, is_lost: bool) -> bool:
    """Copy step 3 while some ranks are lost in it; return whether this is one of them."""
    if is_lost:
        copied: Any = torch
        copied._foreach_copy_ = end_in_the_copy
    with pytest.raises((Ended, RuntimeError)) as raised:
        copies.note(3)
    if raised.type is Ended:
        distributed.close()
        return True
    assert is_lost_peer(raised.value)
    return False


def same(one: Any, other: Any) -> bool:
    if isinstance(one, ModelStates):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__slots__)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@pytest.mark.parametrize(("in_copy", "before"), [({2}, set()), ({0}, {1})])
def test_ranks_that_are_left_have_the_state_before_a_step_that_others_did_not_end(
    run: RankRunner, folder: str, in_copy: set[int], before: set[int]
) -> None:
    ended = in_copy | before
    expected = ["ended" if rank in ended else True for rank in range(3)]
    assert run(survived, 3, folder, in_copy, before) == expected


def survived_event(
    distributed: DistributedContext, folder: str, elsewhere: tuple[int, ...] = ()
) -> Any:
    run = Run(distributed, sharding="fsdp")
    copies = copies_of(distributed, run, folder, elsewhere)
    trained(copies, distributed, run)
    copies.note(3)
    expected = whole_state(distributed, run)
    if ends_in(copies, distributed, is_lost=distributed.rank == 1):
        return "ended"
    with answered(distributed, folder):
        return same(copies.states(3), expected)


@pytest.mark.parametrize("elsewhere", [(), (1,)])
def test_ranks_that_are_left_have_the_last_state_if_one_ends_as_it_is_copied_again(
    run: RankRunner, folder: str, elsewhere: tuple[int, ...]
) -> None:
    assert run(survived_event, 2, folder, elsewhere) == [True, "ended"]


@contextmanager
def answered(distributed: DistributedContext, folder: str) -> Iterator[None]:
    """Be the agent that has the memory of all ranks."""
    copies = HeldCopies(RunDir(Path(folder)), [""] * distributed.size)
    for rank in range(distributed.size):
        for number in range(2):
            copies.hold(rank, number, RunDir(Path(folder)).copy(rank, number).open("rb"))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(copies.listen(Path(folder, "s")))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def survived_elsewhere(distributed: DistributedContext, folder: str) -> Any:
    """Lose rank 2, of which rank 0 has no memory; return what rank 0 finds."""
    run = Run(distributed, kind=Centered, sharding="fsdp")
    elsewhere = {0: (1, 2), 1: (0,), 2: (0,)}[distributed.rank]
    copies = copies_of(distributed, run, folder, elsewhere)
    expected = trained(copies, distributed, run)
    if ends_in(copies, distributed, is_lost=distributed.rank == 2) or distributed.rank:
        return None
    with pytest.raises(CopyLost, match="rank 1's copy of its part of the model is lost with its"):
        copies.states(2)
    with answered(distributed, folder):
        return same(copies.states(2), expected)


def test_copies_of_ranks_on_other_computers_are_fetched_from_agents(
    run: RankRunner, folder: str
) -> None:
    assert run(survived_elsewhere, 3, folder) == [True, None, None]


def without_room(distributed: DistributedContext, folder: str) -> None:
    run = Run(distributed, sharding="fsdp")
    copies = copies_of(distributed, run, folder, (1 - distributed.rank,))
    copies.note(0)
    free = psutil.virtual_memory()
    psutil.virtual_memory = lambda: free._replace(available=1000)
    with pytest.raises(CopyLost, match=r"takes .* of memory, 1(,000|.0) .*B are free"):
        copies.states(0)


def test_parts_are_not_put_together_where_they_would_take_the_free_memory(
    run: RankRunner, folder: str
) -> None:
    run(without_room, 2, folder)


class Few(nn.Linear):
    """A model of which only one rank has a part."""

    def __init__(self) -> None:
        super().__init__(FEATURES, 1)


def of_few_rows(distributed: DistributedContext, folder: str) -> bool:
    run = Run(distributed, kind=Few, sharding="fsdp")
    copies = copies_of(distributed, run, folder)
    copies.note(0)
    return same(copies.states(0), whole_state(distributed, run))


def test_a_rank_may_have_no_part_of_a_model(run: RankRunner, folder: str) -> None:
    assert run(of_few_rows, 2, folder) == [True, True]


def without_memory(distributed: DistributedContext, folder: str) -> None:
    run = Run(distributed, sharding="fsdp")
    copies = copies_of(distributed, run, folder)
    if distributed.rank:
        free = psutil.virtual_memory()
        psutil.virtual_memory = lambda: free._replace(available=1000)
    copies.note(0)
    copies.note(0)
    with pytest.raises(CopyLost, match=r"rank 1 makes no copy .* half of the 1.0 kB that are"):
        copies.states(0)


def test_no_copy_is_made_where_it_would_take_the_free_memory(run: RankRunner, folder: str) -> None:
    run(without_memory, 2, folder)


def with_memory(distributed: DistributedContext, folder: str, total: int) -> list[bool]:
    """Train with so much memory that is free; return which of the last steps can be saved."""
    run = Run(distributed, sharding="fsdp")
    copies = copies_of(distributed, run, folder)
    now, files = psutil.virtual_memory(), list(Path(folder).glob("copy-*"))

    def with_free() -> Any:
        return now._replace(available=total - sum(file.stat().st_size for file in files))

    psutil.virtual_memory = with_free
    trained(copies, distributed, run)
    can_save = []
    for steps in (1, 2):
        try:
            copies.states(steps)
            can_save.append(True)
        except CopyLost:
            can_save.append(False)
    return can_save


def test_copies_are_made_after_all_steps_or_after_none(run: RankRunner, folder: str) -> None:
    found = list[bool]()
    for total in range(4000, 40000, 5000):
        for file in Path(folder).glob("copy-*"):
            file.write_bytes(b"")
        of_one, of_other = run(with_memory, 2, folder, total)
        assert of_one == of_other
        assert of_one[0] == of_one[1], total
        found.append(of_one[0])
    assert found == sorted(found)
    assert set(found) == {False, True}


def with_limit(distributed: DistributedContext, folder: str) -> None:
    run = Run(distributed, sharding="fsdp")
    copies = copies_of(distributed, run, folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    copies.note(0)
    with pytest.raises(CopyLost, match=r"rank 0 .* memory for it cannot be opened: File too"):
        copies.states(0)


def test_a_limit_of_the_user_is_the_reason_why_nothing_is_copied(
    run: RankRunner, folder: str
) -> None:
    run(with_limit, 2, folder)
