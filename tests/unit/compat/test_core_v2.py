"""Scripts for `determined.experimental.core_v2`: each is a run by hand, here without a master."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import StartUnmanaged
from det_jupyter.contract.run.journal import MetricsReported, RankFailure, RunEnded
from det_jupyter.contract.run.unmanaged import offline_runs, request_file, whole_records
from det_jupyter.core.unmanaged import OFFLINE_VARIABLE
from tests.unit.compat.conftest import COMPAT

# After Determined's examples 1_singleton.py and 2_checkpoints.py.
GOES_ON = """
from determined.experimental import core_v2

def main():
    core_v2.init(
        defaults=core_v2.DefaultConfig(
            name="base", hparams={"lr": 0.1}, labels=["a"],
            searcher={"name": "single", "metric": "error", "max_length": 1000},
        ),
        unmanaged=core_v2.UnmanagedConfig(external_experiment_id="s1", external_trial_id="t1"),
    )
    first = 0
    if core_v2.info.latest_checkpoint is not None:
        with core_v2.checkpoint.restore_path(core_v2.info.latest_checkpoint) as path:
            first = int((path / "state").read_text())
    assert core_v2.info._trial_info.hparams == {"lr": 0.1}
    for i in range(first, first + 10):
        core_v2.train.report_training_metrics(steps_completed=i, metrics={"loss": 1.0 / (i + 1)})
    core_v2.train.report_validation_metrics(steps_completed=i, metrics={"error": 0.5})
    core_v2.train.report_progress(i / 100)
    with core_v2.checkpoint.store_path({"steps_completed": i}) as (path, uuid):
        (path / "state").write_text(str(i + 1))
    core_v2.close()
    print("trained from", first)
"""


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_JUPYTER_HOME", str(tmp_path))
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")


def folders(home: Path) -> list[Path]:
    """Return the folders of the runs, oldest first."""
    return sorted(offline_runs(home / "data").iterdir(), key=lambda each: each.stat().st_ctime)


def test_a_run_of_a_trial_id_goes_on_from_its_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script: dict[str, object] = {}
    exec(GOES_ON, script)
    for _ in range(2):
        script["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out.splitlines() == ["trained from 0", "trained from 10"]
    _, folder = folders(tmp_path)
    request = StartUnmanaged.model_validate_json(request_file(folder).read_bytes())
    assert request.config["name"] == "base t1"
    assert request.config["labels"] == ["unmanaged", "a", "s1"]
    assert request.config["searcher"]["metric"] == "error"
    records = whole_records(RunDir(folder).journal(0))
    steps = [each.steps_completed for each in records if isinstance(each, MetricsReported)]
    assert steps == [*range(10, 20), 19]
    assert isinstance(records[-1], RunEnded)


def test_its_parts_exist_between_init_and_close() -> None:
    from determined.experimental import core_v2

    with pytest.raises(AttributeError, match=r"core_v2\.train: there is no run; call core_v2\.in"):
        core_v2.train  # noqa: B018
    with pytest.raises(AttributeError, match=r"no determined.*Unknown \(see docs"):
        core_v2.Unknown  # noqa: B018
    with core_v2.init_context(config=core_v2.Config(name="block")) as context:
        context.train.report_training_metrics(steps_completed=0, metrics={"loss": 1.0})
        assert context.info is not None
        assert context.info.latest_checkpoint is None


def test_an_error_of_a_cell_before_it_is_none_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from determined.experimental import core_v2

    monkeypatch.setattr("sys.last_value", ValueError("of another cell"), raising=False)
    core_v2.init()
    core_v2._close_at_exit()
    (folder,) = folders(tmp_path)
    assert isinstance(whole_records(RunDir(folder).journal(0))[-1], RunEnded)


def test_a_script_that_fails_without_closing_has_failed(tmp_path: Path) -> None:
    code = "from determined.experimental import core_v2\ncore_v2.init()\n1 / 0\n"
    environment = os.environ | {"PYTHONPATH": f"{COMPAT}{os.pathsep}{COMPAT.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (folder,) = folders(tmp_path)
    assert folder.name.startswith("unmanaged-")
    failure = whole_records(RunDir(folder).journal(0))[-1]
    assert isinstance(failure, RankFailure)
    assert "ZeroDivisionError" in failure.error
