"""A pause is waited for until the slots are free."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client import follow as module
from det_jupyter.client.follow import pause_and_wait
from det_jupyter.contract.messages import ExperimentView, State
from tests.unit.view.view_samples import experiment


class Pausing:
    """A master whose experiment needs so many looks until its slots are free."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.waited_s: list[float] = []

    def view(self) -> ExperimentView:
        state = State.PAUSED if len(self.waited_s) >= self.looks else State.PAUSING
        return experiment(state=state)

    def change(self, request: Any) -> ExperimentView:
        return self.view()

    def experiment(self, experiment_id: int) -> ExperimentView:
        return self.view()


@pytest.mark.parametrize(
    ("looks", "timeout", "state"),
    [(0, None, State.PAUSED), (6, None, State.PAUSED), (10**6, 2.0, State.PAUSING)],
)
def test_a_pause_is_waited_for_until_slots_are_free_or_the_time_is_over(
    looks: int, timeout: float | None, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Pausing(looks)
    clock = SimpleNamespace(
        monotonic=lambda: sum(master.waited_s), sleep=lambda s: master.waited_s.append(s)
    )
    monkeypatch.setattr(module, "time", clock)
    ended = pause_and_wait(cast("Client", master), 1, timeout, at_once=False)
    assert ended is state
    if timeout is None:
        assert len(master.waited_s) == looks
    else:
        assert sum(master.waited_s) == pytest.approx(timeout)
