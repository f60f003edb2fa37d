"""Ranks that are left have the whole state of a sharded model, as all have saved it together."""

from __future__ import annotations

import copy
from contextlib import closing
from typing import Any, NoReturn

import psutil
import pytest
import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import is_lost_peer
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.checkpoints.training_state import ModelStates
from det_jupyter.pytorch.training.shard_copies import ShardCopies
from tests.integration.parallel_ranks import RankRunner
from tests.integration.parallel_samples import FEATURES, Centered, Run


class Ended(Exception):
    """A rank ends here."""


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
    distributed: DistributedContext, ends_in_copy: set[int], ends_before: set[int]
) -> Any:
    """Lose ranks in the third step; return whether the others have the state of the second."""
    run = Run(distributed, kind=Centered, sharding="fsdp")
    with closing(ShardCopies(distributed, [run.model], [run.optimizer])) as copies:
        for steps in range(3):
            copies.note(steps)
            if steps == 2:
                expected = whole_state(distributed, run)
            run.train(1)
        if distributed.rank in ends_before:
            distributed.close()
            return "ended"
        if ends_in(copies, distributed, is_lost=distributed.rank in ends_in_copy):
            return "ended"
        with pytest.raises(CheckpointError, match="has left no copy"):
            copies.states(3)
        return same(copies.states(2), expected)


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
    run: RankRunner, in_copy: set[int], before: set[int]
) -> None:
    ended = in_copy | before
    expected = ["ended" if rank in ended else True for rank in range(3)]
    assert run(survived, 3, in_copy, before) == expected


def survived_event(distributed: DistributedContext) -> Any:
    run = Run(distributed, sharding="fsdp")
    with closing(ShardCopies(distributed, [run.model], [run.optimizer])) as copies:
        for steps in range(3):
            copies.note(steps)
            run.train(1)
        copies.note(3)
        expected = whole_state(distributed, run)
        if ends_in(copies, distributed, is_lost=distributed.rank == 1):
            return "ended"
        return same(copies.states(3), expected)


def test_ranks_that_are_left_have_the_last_state_if_one_ends_as_it_is_copied_again(
    run: RankRunner,
) -> None:
    assert run(survived_event, 2) == [True, "ended"]


class Few(nn.Linear):
    """A model of which only one rank has a part."""

    def __init__(self) -> None:
        super().__init__(FEATURES, 1)


def of_few_rows(distributed: DistributedContext) -> bool:
    run = Run(distributed, kind=Few, sharding="fsdp")
    with closing(ShardCopies(distributed, [run.model], [run.optimizer])) as copies:
        copies.note(0)
        return same(copies.states(0), whole_state(distributed, run))


def test_a_rank_may_have_no_part_of_a_model(run: RankRunner) -> None:
    assert run(of_few_rows, 2) == [True, True]


def without_memory(distributed: DistributedContext) -> None:
    run = Run(distributed, sharding="fsdp")
    with closing(ShardCopies(distributed, [run.model], [run.optimizer])) as copies:
        if distributed.rank:
            free = psutil.virtual_memory()
            psutil.virtual_memory = lambda: free._replace(available=1000)
        copies.note(0)
        copies.note(0)
        with pytest.raises(CheckpointError, match="rank 1 has left no copy"):
            copies.states(0)


def test_no_copy_is_made_where_it_would_take_the_free_memory(run: RankRunner) -> None:
    run(without_memory, 2)
