"""What `det e create --test-mode` trains: one batch, whatever the configuration says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.errors import ConfigError
from det_jupyter.front.cli.create import one_batch_config, run_locally

SEARCH: dict[str, Any] = {
    "name": "adaptive_asha", "metric": "accuracy", "smaller_is_better": False,
    "max_length": {"epochs": 9}, "max_trials": 16,
}  # fmt: skip


def written(**changes: Any) -> dict[str, Any]:
    return {
        "name": "digits", "entrypoint": "model:Digits", "max_restarts": 5,
        "hyperparameters": {"global_batch_size": 8}, "records_per_epoch": 80, "searcher": SEARCH,
    } | changes  # fmt: skip


def one_batch(document: dict[str, Any]) -> dict[str, Any]:
    return one_batch_config(document, parse_config(document, default_seed=0))


def test_one_trial_trains_one_batch_and_keeps_no_checkpoint() -> None:
    document = one_batch(written(checkpoint_storage={"save_trial_best": 3, "type": "shared_fs"}))
    assert document["searcher"] == {
        "name": "single", "metric": "accuracy", "smaller_is_better": False,
        "max_length": {"batches": 1},
    }  # fmt: skip
    assert document["min_validation_period"] == {"batches": 1}
    assert (document["scheduling_unit"], document["max_restarts"]) == (1, 0)
    assert document["checkpoint_storage"] == {
        "type": "shared_fs", "save_experiment_best": 0, "save_trial_best": 0,
        "save_trial_latest": 0,
    }  # fmt: skip
    assert document["entrypoint"] == "model:Digits"
    assert document["description"] == "[test-mode] digits"


def test_a_description_is_marked() -> None:
    assert one_batch(written(description="baseline"))["description"] == "[test-mode] baseline"


@pytest.mark.parametrize(("code", "status"), [("pass", 0), ("raise SystemExit(7)", 7)])
def test_a_script_runs_in_its_folder_and_its_status_is_returned(
    tmp_path: Path, code: str, status: int
) -> None:
    (tmp_path / "train.py").write_text(f"open('ran', 'w').close()\n{code}\n", encoding="utf-8")
    config = parse_config(written(entrypoint=f"{sys.executable} train.py"), default_seed=0)
    assert run_locally(config, tmp_path) == status
    assert (tmp_path / "ran").exists()


def test_a_name_of_a_notebook_cannot_run_without_it(tmp_path: Path) -> None:
    config = parse_config(written(entrypoint="Digits"), default_seed=0)
    with pytest.raises(ConfigError, match="expected module:Digits"):
        run_locally(config, tmp_path)
