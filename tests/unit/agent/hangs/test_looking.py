"""What a closer look at a rank concludes from its stack and the flight recorder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from det_jupyter.agent.hangs.looking import Seen
from det_jupyter.agent.hangs.recorder import Recorded
from det_jupyter.agent.hangs.stacks import Frame
from det_jupyter.agent.hangs.stall_watch import Finding, OthersSample, RankSample, StallWatch

BACKWARD = [
    Frame("/p/site-packages/torch/autograd/graph.py", 865, "_engine_run_backward"),
    Frame("/p/site-packages/torch/_tensor.py", 600, "backward"),
    Frame("<cell 3>", 8, "train_batch"),
]
BARRIER = [Frame("/p/site-packages/torch/distributed/distributed_c10d.py", 4800, "barrier")]
PENDING = Recorded(number=7, group="0", text="all_reduce [4] float32", is_pending=True)


def is_of_cell(frame: Frame) -> bool:
    return frame.file == "<cell 3>"


def test_a_loop_that_polls_stays_at_its_line_whatever_it_calls() -> None:
    cell = Frame("<cell 3>", 8, "train_batch")
    inner = ["wait", "get", "exists"]
    looks = [
        Seen(pid=1, frames=[Frame("/lib/queue.py", line, name), cell]).look(
            is_of_cell, spins=False
        )
        for line, name in enumerate(inner)
    ]
    assert looks[0] == looks[1] == looks[2]
    other = Seen(pid=1, frames=[cell._replace(line=9)]).look(is_of_cell, spins=False)
    assert other.position != looks[0].position


@pytest.mark.parametrize(
    ("seen", "spins", "waits"),
    [
        (Seen(pid=1, frames=BACKWARD), False, True),  # with gloo this thread computes it itself
        (Seen(pid=1, frames=BACKWARD), True, False),
        (Seen(pid=1, frames=BACKWARD, recorded=[replace(PENDING, is_pending=False)]), True, False),
        (Seen(pid=1, frames=BACKWARD, recorded=[PENDING]), True, True),
        (Seen(pid=1, frames=BARRIER), True, True),
    ],
)
def test_a_backward_pass_on_cuda_waits_if_a_collective_is_pending(
    seen: Seen, spins: bool, waits: bool
) -> None:
    assert seen.look(is_of_cell, spins=spins).waits is waits


def test_a_backward_pass_that_is_compiled_on_cuda_is_no_stall() -> None:
    """The main thread sleeps, and torch's thread for the device compiles for minutes."""
    watch, finding = StallWatch(6.0), Finding()
    for second in range(300):
        sample = RankSample(
            rank=0,
            batch=1,
            beats=second + 1,
            others=OthersSample(cpu_s=float(second)),
            spins=True,
            look=Seen(pid=1, frames=BACKWARD).look(is_of_cell, spins=True)
            if finding.wants_look
            else None,
        )
        finding = watch.step([sample], 1000.0 + second)
        assert finding.stalled is None, f"after {second} s"
