"""Scripts in an experiment: they find their run by their environment, and report to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.control import ControlPage
from det_jupyter.errors import ConfigError, LaunchError
from det_jupyter.records import FirstStep, MetricsReported
from det_jupyter.system.rundir import RunDir
from tests.unit.core.run_folder import make_run, records_of, variables


class Runs:
    def __init__(self, home: Path, environment: pytest.MonkeyPatch) -> None:
        self._home = home
        self._environment = environment

    def begin(self, **changes: Any) -> RunDir:
        """Let this process be one of a run."""
        folder = make_run(self._home, **changes)
        for name, value in variables(folder, self._home).items():
            self._environment.setenv(name, value)
        return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    for name in ("WORLD_SIZE", "DET_AGENT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.excepthook", lambda *error: None)
    yield Runs(tmp_path, monkeypatch)
    core.set_current(None)


def test_a_script_reports_to_its_run(runs: Runs) -> None:
    folder = runs.begin()
    info = core.get_cluster_info()
    assert info is not None
    assert (info.trial.trial_id, info.hparams, info.latest_checkpoint) == (7, {"rate": 0.5}, None)
    with core.init() as context:
        assert context.info is not None
        context.train.report_validation_metrics(4, {"accuracy": 0.5})
        assert not context.preempt.should_preempt()
        page = ControlPage(folder.control)
        page.raise_signal("preempt")
        assert context.preempt.should_preempt()
        assert page.is_acknowledged()
    first, metrics = records_of(folder, 0)
    assert isinstance(first, FirstStep)
    assert first.steps_completed == 4
    assert isinstance(metrics, MetricsReported)
    assert metrics.metrics == {"accuracy": 0.5}


def test_one_of_several_workers_has_to_say_which(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin(num_slots=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"one of several .* 2 slots .*from_torch_distributed"):
        core.init()
    monkeypatch.delenv("WORLD_SIZE")
    first = core.init()  # it may use both slots by itself
    core.set_current(None)
    with pytest.raises(ConfigError, match="both would be the chief"):
        core.init()
    assert first.info is not None


def test_a_run_that_is_over_is_said(runs: Runs) -> None:
    folder = runs.begin()
    folder.plan.unlink()
    with pytest.raises(LaunchError, match="that run is over"):
        core.init()
