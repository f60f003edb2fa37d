"""A Ctrl-C that is delivered twice is one."""

from __future__ import annotations

from det_jupyter.contract.host.interrupts import Interrupts


def test_signals_at_almost_the_same_time_are_one_interrupt() -> None:
    times = [5.0, 5.0, 5.2, 5.4, 5.6, 9.0, 9.1]
    interrupts = Interrupts(iter(times).__next__)
    noted = [interrupts.note() for _ in times]
    assert noted == [True, False, False, True, False, True, False]
    assert interrupts.num == 3
