"""Runs that only measure, and a few batches that are tried out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import pytorch
from det_jupyter.config import parse_config
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported
from det_jupyter.contract.values.lengths import parse_length
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.training.rehearsal import VARIABLE
from det_jupyter.pytorch.training.try_out import try_out
from tests.unit.pytorch.training.planned_samples import Line, Planned, document


class Counting(Line):
    """Counts what is loaded of its data."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.seen: list[int] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.seen.append(round(float(batch[1].sum()) * 10**6))
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize(("given", "distinct"), [("replay=2", 2), ("replay=0", 4)])
def test_a_rehearsal_ends_when_it_has_measured(
    given: str,
    distinct: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, f"seconds=0.02 warmup=4 {given}")
    run = Planned(tmp_path, Counting, target=parse_length({"batches": 10**9}))
    assert run.train() == "stopped"
    assert f"{VARIABLE}=seconds=0.02 warmup=4 {given}: this run only measures" in (
        capsys.readouterr().err
    )
    [report] = [each for each in run.records(MetricsReported) if each.group == "rehearsal"]
    assert report.metrics["records_per_s"] > 0
    assert report.metrics["seconds"] >= 0.02
    assert "workers" not in report.metrics
    assert isinstance(run.run.trial, Counting)
    assert len(set(run.run.trial.seen)) >= distinct
    assert (len(set(run.run.trial.seen)) == 2) is (distinct == 2)


def test_a_few_batches_are_tried_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = parse_config(document(tmp_path / "home"), default_seed=0)
    trial = try_out(Counting, config, {"global_batch_size": 8}, batches=3)
    assert isinstance(trial, Counting)
    assert len(trial.seen) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines[:-1]] == [
        "batch 1", "batch 2", "batch 3", "batch 3", "batch 3",
    ]  # fmt: skip
    assert lines[-1].startswith("3 batches, their validation and a checkpoint worked in ")
    assert lines[-1].endswith(" on cpu; Counting is returned as it is now")
    assert list(tmp_path.glob("det-local-*")) == []


def test_a_trial_without_the_searchers_metric_is_told(tmp_path: Path) -> None:
    other = {"searcher": {"name": "single", "metric": "accuracy", "max_length": {"batches": 3}}}
    config = parse_config(document(tmp_path, **other), default_seed=0)
    with pytest.raises(ConfigError, match="accuracy"):
        try_out(Counting, config, {"global_batch_size": 8})


@pytest.mark.parametrize(
    ("policy", "saved"), [("none", [10]), ("all", [4, 8, 10]), ("best", [4, 8, 10])]
)
def test_checkpoints_are_saved_by_the_policy(
    policy: str, saved: list[int], tmp_path: Path
) -> None:
    run = Planned(tmp_path, configuration={"checkpoint_policy": policy})
    run.train()
    assert [each.steps_completed for each in run.records(CheckpointSaved)] == saved
