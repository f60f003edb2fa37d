"""What the master reads from its environment: a folder for checkpoints, and its idle time."""

from __future__ import annotations

import pytest

from det_jupyter.master.serve import default_storage, idle_hours

VARIABLE = "DET_JUPYTER_CHECKPOINT_STORAGE"


@pytest.mark.parametrize(
    ("given", "folder"),
    [({}, ""), ({VARIABLE: ""}, ""), ({VARIABLE: "/a/b/"}, "/a/b"), ({VARIABLE: "a"}, "")],
)
def test_it_is_an_absolute_path_of_the_environment(given: dict[str, str], folder: str) -> None:
    assert default_storage(given) == folder


def test_what_is_no_absolute_path_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    default_storage({VARIABLE: "a"})
    assert f"{VARIABLE}: got 'a', expected an absolute path" in caplog.text


@pytest.mark.parametrize("given", ["twelve", "", "0", "-1", "nan"])
def test_bad_idle_time_is_an_error_in_the_log_and_the_default_is_used(
    given: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert idle_hours({"DET_JUPYTER_IDLE_HOURS": given}) == 12
    assert caplog.messages == [
        f"DET_JUPYTER_IDLE_HOURS: got {given!r}, expected a number of hours above 0; staying for "
        "12 hours"
    ]


def test_idle_time_is_what_is_asked_for() -> None:
    assert idle_hours({}) == 12
    assert idle_hours({"DET_JUPYTER_IDLE_HOURS": " 0.5 "}) == 0.5
