"""A run's folder as an agent makes it, for processes that look for their run there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter.config import parse_config
from det_jupyter.contract.host.rundir import (
    DATA_VARIABLE,
    RUN_VARIABLE,
    SECRET_VARIABLE,
    STORE_VARIABLE,
    RunDir,
    run_dir,
)
from det_jupyter.contract.messages import Capsule, GangPlan, SlotView
from det_jupyter.contract.run.control_page import create_page
from det_jupyter.contract.run.journal import Record, parse_line
from det_jupyter.contract.values.lengths import parse_length

CONFIG: dict[str, Any] = {
    "name": "a script",
    "entrypoint": "python3 train.py",
    "searcher": {
        "name": "single",
        "metric": "accuracy",
        "smaller_is_better": False,
        "max_length": {"batches": 10},
    },
    "hyperparameters": {"rate": 0.5},
}


def make_run(home: Path, *, num_slots: int = 1, **changes: Any) -> RunDir:
    """Write the folder of a run, and return it."""
    config = parse_config(CONFIG, default_seed=11)
    plan = GangPlan(
        **{
            "allocation_id": "7.1",
            "experiment_id": 3,
            "trial_id": 7,
            "run": 1,
            "python": "python3",
            "cwd": str(home),
            "slots": [
                SlotView(id=i, kind="cpu", index=i, name="CPU place") for i in range(num_slots)
            ],
            "config": config.to_document(),
            "hparams": {"rate": 0.5},
            "seed": 11,
            "capsule": Capsule(entrypoint="python3 train.py", sources=""),
            "target": parse_length({"batches": 10}),
            **changes,
        }
    )
    folder = run_dir(home, plan.allocation_id)
    folder.path.mkdir(parents=True)
    folder.plan.write_text(plan.model_dump_json())
    create_page(folder.control)
    return folder


def variables(folder: RunDir, home: Path) -> dict[str, str]:
    """Return the environment by which a process finds the run."""
    return {
        RUN_VARIABLE: str(folder.path),
        DATA_VARIABLE: str(home),
        STORE_VARIABLE: str(home / "store"),
        SECRET_VARIABLE: "00" * 32,
    }


def records_of(folder: RunDir, rank: int) -> list[Record]:
    """Return what a rank has journaled."""
    lines = folder.journal(rank).read_text().splitlines()
    return [parse_line(line) for line in lines]
