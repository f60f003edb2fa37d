"""A hang in one sentence: which ranks do not move, where they are, who waits for them."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import HangReport, RankStall, describe_mismatch
from det_jupyter.contract.run.journal import RanksStalled, parse_line, to_line

NINE = "all_reduce [9] float32"


def rank(index: int, kind: Any = "waits", **values: Any) -> RankStall:
    if kind == "waits":
        values = {"collective": NINE, "number": 7, "batch": 118} | values
    return RankStall(rank=index, kind=kind, pid=70 + index, **values)


def asleep(number: int, **values: Any) -> RankStall:
    return rank(number, "still", call="time.sleep", place="cell 12, line 8", **values)


def sentence(*ranks: RankStall) -> str:
    return HangReport(since=100.0, at=106.0, ranks=list(ranks)).sentence(now=114.2)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (
            [rank(0), asleep(1)],
            "rank 1 has been in `time.sleep` (cell 12, line 8) for 14 s; rank 0 waits for it in "
            "all_reduce, batch 118",
        ),
        (
            [rank(0), asleep(1), asleep(2), rank(3)],
            "ranks 1 and 2 have been in `time.sleep` (cell 12, line 8) for 14 s; ranks 0 and 3 "
            "wait for them in all_reduce, batch 118",
        ),
        (
            [rank(0), rank(1, "stopped")],
            "rank 1 has been stopped by a signal or a debugger (`kill -CONT 71` lets it "
            "continue) for 14 s; rank 0 waits for it in all_reduce, batch 118",
        ),
        (
            [rank(0), rank(1, "held", call="lib.run", place="train.py, line 3")],
            "rank 1 has been in `lib.run` (train.py, line 3), which holds the GIL, for 14 s; "
            "rank 0 waits for it in all_reduce, batch 118",
        ),
        (
            [rank(0), rank(1, "held")],
            "rank 1 has been in C code, which holds the GIL, for 14 s; rank 0 waits for it in "
            "all_reduce, batch 118",
        ),
        (
            [rank(0), asleep(1, child="(process 90) is in `lock.acquire` (cell 3, line 4)")],
            "rank 1 has been waiting for its data loader, whose worker (process 90) is in "
            "`lock.acquire` (cell 3, line 4), for 14 s; rank 0 waits for it in all_reduce, batch "
            "118",
        ),
        (
            [rank(0, "still", batch=5), rank(1, "still", batch=5)],
            "ranks 0 and 1 have been motionless for 14 s, batch 5",
        ),
        (
            [rank(0), rank(1)],
            "all ranks have waited in the same collective for 14 s: all_reduce [9] float32, "
            "batch 118; the communication between them hangs",
        ),
        (
            [
                rank(0, begun={7: NINE}),
                rank(1, begun={6: NINE, 7: "all_reduce [3] float32", 8: NINE}),
            ],
            "rank 1 entered all_reduce [3] where rank 0 entered all_reduce [9], and they have "
            "waited for 14 s, batch 118",
        ),
        (
            [rank(0), rank(1, collective="barrier", number=None, place="cell 3, line 2")],
            "ranks have waited for each other in different collectives for 14 s: rank 0 in "
            "all_reduce [9] float32 and rank 1 in barrier (cell 3, line 2), batch 118",
        ),
    ],
)
def test_a_hang_is_one_sentence(ranks: list[RankStall], expected: str) -> None:
    assert sentence(*ranks) == expected


def test_collectives_of_different_numbers_are_not_compared() -> None:
    assert describe_mismatch([rank(0, begun={7: NINE}), rank(1, begun={8: "barrier"})]) == ""
    assert describe_mismatch([rank(0, begun={7: NINE}), rank(1, begun={7: NINE})]) == ""
    assert describe_mismatch([rank(0), rank(1)]) == ""


def test_a_record_of_stalled_ranks_is_one_line() -> None:
    record = RanksStalled(at=3.5, since=1.0, ranks=[rank(0), asleep(1, stack="a\nb \udcff")])
    line = to_line(record)
    assert line.count("\n") == 1
    read = parse_line(line)
    assert isinstance(read, RanksStalled)
    assert (read.since, [stall.rank for stall in read.ranks]) == (1.0, [0, 1])
    assert read.ranks[1].call == "time.sleep"
    assert parse_line(to_line(RanksStalled(at=1.0, since=1.0))) == RanksStalled(at=1.0, since=1.0)
