"""Which types cannot be sent to the ranks."""

from __future__ import annotations

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import Session
from det_jupyter.contract.values.lengths import Length
from det_jupyter.front.notebook.capture.refusals import refusal_of
from det_jupyter.front.notebook.handles.live import LiveView
from det_jupyter.front.notebook.handles.slots_and_queue import Displayed


@pytest.mark.parametrize("handle", [Client, Experiment, Session, LiveView, Displayed])
def test_handles_of_the_notebook_are_refused(handle: type) -> None:
    refusal = refusal_of(handle)
    assert refusal is not None
    assert refusal.reason == "it is a handle of this notebook"


def test_values_of_the_package_travel() -> None:
    assert refusal_of(Length) is None
