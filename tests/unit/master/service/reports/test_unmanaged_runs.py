"""Whether unmanaged runs report."""

from __future__ import annotations

import pytest

from det_jupyter.errors import NotFound
from det_jupyter.master.service.agents.links import AgentLinks
from det_jupyter.master.service.reports.unmanaged_runs import SILENT_S, UnmanagedRuns
from tests.unit.master.machine.handlers.test_unmanaged import left, start, up
from tests.unit.master.machine_world import World


class Links(AgentLinks):
    """Links whose time a test sets."""

    def pass_time(self, seconds: float) -> None:
        self._running_s += seconds


def test_a_run_is_silent_once_when_it_has_not_reported_for_long() -> None:
    world, links = World(), Links()
    runs = UnmanagedRuns(world.machine, links)
    world.tell(start(), *up())
    assert [*runs.newly_silent(1000.0)] == []  # a master that has just started waits, too
    links.pass_time(SILENT_S - 1)
    assert runs.hear("1.1.1") == ("unmanaged@desk", False)
    links.pass_time(SILENT_S - 1)
    assert [*runs.newly_silent(1000.0)] == []
    links.pass_time(2)
    (heard,) = runs.newly_silent(1000.0)
    assert (heard.allocation_id, heard.silent_since) == ("1.1.1", 1000.0 - SILENT_S - 1)
    world.tell(heard)
    assert [*runs.newly_silent(1001.0)] == []
    assert runs.hear("1.1.1") == ("unmanaged@desk", True)


def test_a_run_that_is_over_or_not_unmanaged_cannot_report() -> None:
    world = World()
    runs = UnmanagedRuns(world.machine, Links())
    world.tell(start(), *up(), *left())
    for allocation_id in ("1.1.1", "7.7.7", "no"):
        with pytest.raises(NotFound, match="is over, or was not started by hand"):
            runs.hear(allocation_id)
    assert runs.started("one").plan is None
