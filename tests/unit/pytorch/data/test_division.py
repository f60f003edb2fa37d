"""How a global batch is divided among the ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.pytorch.data.division import Division, Share, divide

limits_ = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("total", "limits", "counts"),
    [
        (10, [3, 3, 2, 2], [3, 3, 2, 2]),
        (9, [3, 3, 2, 2], [3, 2, 2, 2]),
        (5, [3, 3, 2, 2], [2, 1, 1, 1]),
        (2, [3, 3, 2, 2], [1, 1, 0, 0]),
        (9, [8, 1, 8], [4, 1, 4]),
        (1, [1], [1]),
        (0, [2, 2], [0, 0]),
    ],
)
def test_rows_are_divided_evenly_within_what_each_rank_can_take(
    total: int, limits: list[int], counts: list[int]
) -> None:
    assert divide(total, limits) == counts


@given(limits_, st.data())
def test_parts_follow_one_another_and_together_are_the_batch(
    limits: list[int], data: st.DataObject
) -> None:
    total = data.draw(st.integers(1, sum(limits)))
    end_of_previous = 0
    for rank, limit in enumerate(limits):
        begin, end, share = Division(limits, rank).rows(total)
        assert 0 < end - begin <= limit
        assert share.total == total
        if share.records:
            assert begin == end_of_previous
            assert share.records == end - begin
            end_of_previous = end
        else:
            assert begin == 0  # a stand-in
    assert end_of_previous == total


@given(st.integers(1, 8), st.integers(1, 5), st.data())
def test_equal_ranks_differ_by_one_record_at_most(
    size: int, batch_size: int, data: st.DataObject
) -> None:
    counts = divide(data.draw(st.integers(0, size * batch_size)), [batch_size] * size)
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


def test_whole_batches_are_dealt_and_what_is_missing_is_stood_in_for() -> None:
    group = [[1, 2, 3], [4, 5]]
    assert Division([1, 1, 1], 0).deal(group) == ([1, 2, 3], Share(3, 5))
    assert Division([1, 1, 1], 1).deal(group) == ([4, 5], Share(2, 5))
    assert Division([1, 1, 1], 2).deal(group) == ([4, 5], Share(0, 5))
