"""Each of several compared trials has its own curves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.client.handles.compare import fetch_trials
from tests.unit.view.view_samples import curve, experiment, trial


@pytest.mark.parametrize("numbers", [[2, 1], [1, 2, 3]])
def test_a_trial_is_compared_by_its_own_curves(numbers: list[int]) -> None:
    view = experiment(*(trial(id=number) for number in (1, 2, 3)))
    curves = [curve("validation", "error", [0.5], trial_id=number) for number in (1, 1, 2, 3)]
    client: Any = SimpleNamespace(curves=lambda number, max_points: curves)
    compared, notes = fetch_trials(client, view, numbers)
    assert [each.trial and each.trial.id for each in compared] == numbers
    assert [[one.trial_id for one in each.curves] for each in compared] == [
        [number] * (2 if number == 1 else 1) for number in numbers
    ]
    assert notes == []
