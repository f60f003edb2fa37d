"""Event files, read by TensorBoard itself."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.imports import event_files
from det_jupyter.client.imports.event_files import EventFiles, write_event_files
from det_jupyter.contract.messages import (
    Curve,
    ExperimentView,
    Series,
    SeriesPage,
    SeriesQuery,
    State,
)
from det_jupyter.errors import DetError
from tests.unit.view.view_samples import experiment, trial

pytest.importorskip("tensorboard")


class Master:
    """Answers with a history that grows."""

    def __init__(self, state: State = State.ACTIVE) -> None:
        self.state = state
        self.steps = [10, 20]
        self.values: list[float | None] = [0.5, 0.25]

    def experiment(self, experiment_id: int) -> ExperimentView:
        return experiment(trial(id=3, state=self.state), trial(id=4), state=self.state)

    def curves(self, experiment_id: int, *, max_points: int) -> list[Curve]:
        times = [1000.0 + step for step in self.steps]
        own: dict[str, Any] = {"steps": self.steps, "values": self.values, "times": times}
        return [
            Curve(trial_id=3, group="training", name="loss", **own),
            Curve(trial_id=3, group="validation", name="error", **own),
        ]

    def series(self, trial_id: int, query: SeriesQuery) -> SeriesPage:
        if trial_id != 3:
            return SeriesPage(series=[], began_at=None)
        mid = [0.1] * len(self.steps)
        same: dict[str, Any] = {"title": "", "low": mid, "mid": mid, "high": mid}
        if query.of == "timings":
            assert query.axis == "batches"
            x = [float(step) for step in self.steps]
            return SeriesPage(
                series=[Series(source="rank:0", name="forward", x=x, **same)], began_at=1000.0
            )
        x = [1000.5 + step for step in self.steps]
        sources = ("host", "gpu:GPU-1/2", "rank:0")
        series = [Series(source=source, name="busy", x=x, **same) for source in sources]
        return SeriesPage(series=series, began_at=1000.0)


def write(master: Master, folder: Path) -> event_files.EventFiles:
    return write_event_files(cast("Client", master), 7, None, folder)


def read(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    """Return step, time and value of the points that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # has no stubs
        EventAccumulator,
    )

    found: Any = EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, event.wall_time, event.value) for event in found.Scalars(tag)]


def test_metrics_timings_and_system_metrics_are_read_by_tensorboard(tmp_path: Path) -> None:
    files = write(Master(State.COMPLETED), tmp_path / "tb")
    metrics = [(10, 1010.0, 0.5), (20, 1020.0, 0.25)]
    run = tmp_path / "tb" / "trial-3"
    assert read(run, "training/loss") == read(run, "validation/error") == metrics
    times = read(run / "rank-0", "timings/forward")
    assert [(step, at) for step, at, _ in times] == [(10, 1010.0), (20, 1020.0)]
    for name in ("host", "gpu-GPU-1-2", "rank-0"):
        system = read(run / name, "system/busy")
        assert [(step, at) for step, at, _ in system] == [(10, 1010.5), (20, 1020.5)]
    assert not (tmp_path / "tb" / "trial-4").exists()
    assert repr(files) == f"%load_ext tensorboard\n%tensorboard --logdir '{tmp_path}/tb'"


def test_a_folder_gets_only_what_is_new_and_drops_what_a_restart_has_undone(
    tmp_path: Path,
) -> None:
    master = Master(State.COMPLETED)
    write(master, tmp_path)
    master.steps, master.values = [10, 20, 30], [0.5, 0.25, 0.125]
    write(master, tmp_path)
    run = tmp_path / "trial-3"
    assert [step for step, *_ in read(run, "training/loss")] == [10, 20, 30]
    assert len(list(run.glob("events.*"))) == 1
    size = next(run.glob("events.*")).stat().st_size
    write(master, tmp_path)
    assert next(run.glob("events.*")).stat().st_size == size
    # It failed and goes on from the checkpoint at batch 10.
    master.steps, master.values = [10, 15], [0.5, None]
    write(master, tmp_path)
    master.steps, master.values = [10, 15, 20], [0.5, 0.75, 0.5]
    write(master, tmp_path)
    points = [(step, value) for step, _, value in read(run, "training/loss")]
    assert points == [(10, 0.5), (15, 0.75), (20, 0.5)]


def test_files_follow_a_trial_that_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "PERIOD_S", 0.01)
    master = Master()
    files = write(master, tmp_path)
    master.steps, master.values, master.state = [10, 20, 30], [0.5, 0.25, 0.1], State.COMPLETED
    assert files._thread is not None
    files._thread.join()
    assert not files._thread.is_alive()
    assert [step for step, *_ in read(tmp_path / "trial-3", "training/loss")] == [10, 20, 30]
    files.stop()


def test_the_magic_finds_a_program_that_is_not_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tensorboard"
    program.write_text("")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("TENSORBOARD_BINARY", raising=False)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    write(Master(State.COMPLETED), tmp_path / "files")
    assert os.environ["TENSORBOARD_BINARY"] == str(program)


def test_without_tensorboard_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "find_spec", lambda name: None)
    with pytest.raises(DetError, match=r"run `pip install det-jupyter\[tensorboard\]`"):
        write(Master(), tmp_path)


def test_it_is_shown_by_tensorboards_own_function_for_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    module = importlib.import_module("tensorboard.notebook")  # its attribute is a lazy one
    monkeypatch.setattr(module, "start", lines.append)
    EventFiles(tmp_path / "my runs").show()
    assert lines == [f"--logdir '{tmp_path}/my runs'"]
