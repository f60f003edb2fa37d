"""Files that the user writes in the data folder, and what is no file there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from det_jupyter.config.alerts import AlertsFile, read_alerts
from det_jupyter.config.trackers import TrackersFile, read_trackers
from det_jupyter.contract.host import paths
from det_jupyter.errors import ConfigError
from det_jupyter.master.service.pools_file import read_pools
from det_jupyter.master.service.storing.user_file import UserFile


def _problems_of_pools() -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read_pools()
    return [*map(str, raised.value.problems)]


def _problems_of_alerts() -> list[str]:
    file = UserFile(paths.data_dir() / paths.ALERTS_FILE, read_alerts, AlertsFile())
    assert file.content == AlertsFile()
    return [*map(str, file.problems)]


def _problems_of_trackers() -> list[str]:
    file = UserFile(paths.trackers_file(), read_trackers, TrackersFile())
    assert file.content == TrackersFile()
    return [*map(str, file.problems)]


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("pools.yaml", _problems_of_pools),
        (paths.ALERTS_FILE, _problems_of_alerts),
        (paths.TRACKERS_FILE, _problems_of_trackers),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_a_problem_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problems: Callable[[], list[str]]
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths.data_dir() / name)
    (problem,) = problems()
    assert name in problem
    assert problem.endswith("cannot be read: it is no regular file")


def test_a_pipe_in_the_place_of_a_private_file_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "master.json")
    with pytest.raises(OSError, match="it is no regular file"):
        paths.read_private(tmp_path / "master.json")
