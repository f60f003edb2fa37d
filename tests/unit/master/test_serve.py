"""The master's folder for checkpoints that cannot go where their configuration says."""

from __future__ import annotations

import pytest

from det_jupyter.master.serve import default_storage

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
