"""Changes of a trial that trains: nothing is sent unless all of it can be."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.client import Client, Trial
from det_jupyter.contract.messages import ChangeTrial
from det_jupyter.errors import ConfigError, Conflict
from tests.unit.view.view_samples import trial


class Master:
    """Refuses to change the trial itself, and notes what was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def trial(self, trial_id: int) -> Any:
        return trial(id=trial_id)

    def change(self, request: Any) -> None:
        if isinstance(request, ChangeTrial):
            raise Conflict("the trial is not active")
        self.sent.append("priority")


def ordered(master: Master) -> Trial:
    return Trial(cast("Client", master), 3)


@pytest.mark.parametrize("lr", [-1.0, 0.1])
def test_a_priority_is_left_as_it_is_if_the_rest_of_a_change_is_refused(lr: float) -> None:
    master = Master()
    with pytest.raises((ConfigError, Conflict)):
        ordered(master).change(lr=lr, priority=5)
    assert master.sent == []


def test_a_priority_alone_is_changed() -> None:
    master = Master()
    assert ordered(master).change(priority=5) is None
    assert master.sent == ["priority"]


def test_nothing_to_change_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to change"):
        ordered(Master()).change()
