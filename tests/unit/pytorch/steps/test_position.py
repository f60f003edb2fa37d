"""Windows of batches, and the batches at which the optimizer steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.pytorch.steps.position import Position


@given(st.integers(1, 6), st.integers(1, 30))
def test_windows_cover_every_batch_once_and_the_last_one_is_stepped(
    frequency: int, end: int
) -> None:
    covered: list[int] = []
    for batch_idx in range(end):
        position = Position(frequency, batch_idx=batch_idx, end=end)
        if position.is_step:
            covered += position.window
            following = Position(frequency, batch_idx=position.next_step, end=end)
            assert batch_idx < position.next_step
            assert batch_idx + 1 == end or following.is_step
    assert covered == list(range(end))
