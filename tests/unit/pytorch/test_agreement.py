"""Agreement of ranks: after which batches they exchange, and what they then do."""

from __future__ import annotations

from itertools import pairwise

from det_jupyter.core import DistributedContext, PreemptContext
from det_jupyter.pytorch.agreement import Agreement, Decision


class Page:
    """A control page of which nothing is mapped."""

    def __init__(self) -> None:
        self.raised: set[str] = set()

    def check(self, signal: str) -> bool:
        return signal in self.raised

    def note_saving(self) -> None:
        self.raised.add("saving")

    def acknowledge(self) -> None:
        self.raised.add("acknowledged")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def exchanges(batch_s: list[float]) -> list[tuple[int, Decision]]:
    """Return the batches after which one rank exchanges, when batches take so long."""
    clock, one = Clock(), DistributedContext()
    agreement = Agreement(one, PreemptContext(None, one), steps_completed=0, clock=clock)
    found = []
    for steps, duration in enumerate(batch_s, start=1):
        clock.now += duration
        if steps == agreement.due_at:
            agreement.measure(steps)
            found.append((steps, agreement.exchange(steps, stop=False)))
    return found


def test_exchanges_come_to_one_in_a_fifth_of_a_second() -> None:
    steps = [at for at, _ in exchanges([0.2 / 128] * 2000)]
    assert steps == [1, 3, 7, 15, 31, 63, 127, *range(255, 2000, 128)]


def test_slow_batches_are_exchanged_one_by_one() -> None:
    assert [at for at, _ in exchanges([0.5] * 5)] == [1, 2, 3, 4, 5]


def test_a_slow_first_batch_misleads_only_briefly() -> None:
    steps = [at for at, _ in exchanges([3.0] + [0.002] * 1000)]
    assert steps[:6] == [1, 2, 4, 8, 16, 32]


def test_metrics_are_flushed_at_once_and_then_every_half_second() -> None:
    flushed = [at for at, verdict in exchanges([0.01] * 200) if verdict.flush]
    assert flushed[0] == 1
    gaps = [later - earlier for earlier, later in pairwise(flushed)]
    assert all(50 <= gap <= 70 for gap in gaps)


def test_a_raised_signal_lets_everyone_leave() -> None:
    one, page = DistributedContext(), Page()
    preempt = PreemptContext(page, one)  # type: ignore[arg-type]  # as far as it is used
    agreement = Agreement(one, preempt, steps_completed=0)
    assert not agreement.exchange(1, stop=False).leave
    page.raised.add("preempt")
    assert agreement.exchange(2, stop=False).leave
    assert preempt.should_preempt(auto_ack=False)
    assert "acknowledged" not in page.raised
    assert preempt.should_preempt()
    assert "acknowledged" in page.raised


def test_a_wish_to_stop_is_told() -> None:
    one = DistributedContext()
    agreement = Agreement(one, PreemptContext(None, one), steps_completed=0)
    assert agreement.exchange(1, stop=True).stop
    assert not agreement.exchange(2, stop=False).stop
