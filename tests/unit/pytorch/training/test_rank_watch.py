"""When the parameters of the ranks are compared, and what of them counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.contract.run.journal import Notice
from det_jupyter.core import RecordList, init
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.training import rank_watch
from det_jupyter.pytorch.training.rank_watch import PERIOD, RankWatch
from tests.unit.pytorch.thread_ranks import ThreadRank, run_ranks

NAN_BITS = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)


def compare(policy: Any, values: list[list[float]] | list[torch.Tensor]) -> list[Any]:
    """Return what each rank raises or journals, whose only parameter has these values."""

    def run(rank: ThreadRank) -> list[str]:
        sink = RecordList()
        model = nn.Module()
        model.weight = nn.Parameter(torch.as_tensor(values[rank.rank]))
        RankWatch(policy, init(distributed=rank, sink=sink), [model]).compare(5)
        return [record.text for record in sink.records if isinstance(record, Notice)]

    return run_ranks(len(values), run)


def test_equal_parameters_are_no_news() -> None:
    assert compare("stop", [[1.0, 2.0], [1.0, 2.0]]) == [[], []]
    assert compare("stop", [torch.tensor([torch.nan]), NAN_BITS]) == [[], []]


@pytest.mark.parametrize("other", [[1.0, -0.0], [0.0, 1.0], [1.0, 1e-45]])
def test_every_bit_counts_and_the_order_too(other: list[float]) -> None:
    for outcome in compare("stop", [[1.0, 0.0], other]):
        assert isinstance(outcome, TrialMistake)
        assert "models.0.weight is not the same on rank 1 as on rank 0" in str(outcome)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8])
def test_a_change_of_any_element_is_found(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_watch, "_CHUNK_CPU", 4)  # integers, so tensors are split and joined
    lengths = [1, 3, 5, 0, 2, 9]

    def run(rank: ThreadRank) -> list[str]:
        sink = RecordList()
        for changed, length in enumerate(lengths):
            for index in range(length):
                values = [torch.arange(n).to(dtype) for n in lengths]
                values[changed][index] += rank.rank
                model = nn.Module()
                for number, value in enumerate(values):
                    other = value.half() if number == 4 else value  # a change of the type between
                    setattr(model, f"n{number}", nn.Parameter(other, requires_grad=False))
                RankWatch("report", init(distributed=rank, sink=sink), [model]).compare(5)
        return [record.text for record in sink.records if isinstance(record, Notice)]

    chief, other = run_ranks(2, run)
    assert isinstance(chief, list)
    names = [text.split()[5] for text in chief]
    assert names == [f"models.0.n{i}" for i, length in enumerate(lengths) for _ in range(length)]
    assert other == []


def test_the_chief_reports_all_ranks_that_differ() -> None:
    chief, *others = compare("report", [[1.0], [2.0], [1.0], [3.0]])
    (text,) = chief
    assert "is not the same on ranks 1, 3 as on rank 0 (steps_completed 5; 1 of 1" in text
    assert others == [[], [], []]


@pytest.mark.parametrize("policy", ["never", "report"])
def test_one_rank_or_never_is_never_due(policy: Any) -> None:
    assert not RankWatch(policy, init(), []).is_due(1, is_report=True, is_last=True)


def test_it_is_due_first_then_at_reports_now_and_then_and_last() -> None:
    core = init()
    core.distributed.size = 2
    watch = RankWatch("report", core, [])
    assert watch.is_due(1, is_report=False, is_last=False)
    watch.compared_at = 1
    assert not watch.is_due(PERIOD, is_report=True, is_last=False)
    assert not watch.is_due(PERIOD + 1, is_report=False, is_last=False)
    assert watch.is_due(PERIOD + 1, is_report=True, is_last=False)
    assert watch.is_due(20, is_report=True, is_last=True)
