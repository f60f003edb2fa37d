"""What a small cluster of Determined 0.38 has stored, as rows of its tables.

experiment 1    single, completed after a restart; a checkpoint, and one that was deleted
experiment 2    random, archived: a trial completed, the other one failed; a group of metrics
experiment 3    still trains
experiment 4    has no trial
model line      version 1 is the checkpoint of experiment 1, version 2 the deleted one
"""

from __future__ import annotations

import io
import tarfile
from typing import Any

from tests.determined_checkpoints import CODE

CLUSTER = "0d6b6f8e-5a1c-4a43-9d0a-3f6a1f6f2b11"
HOST_PATH = "/mnt/determined"
KEPT, DELETED, OTHER = (f"{n}{n}{n}{n}aaaa-0000-4000-8000-000000000000" for n in (1, 2, 3))
_AT = "2023-05-01 12:{:02}:{:02}.250000+00"


def packed(files: dict[str, str]) -> bytes:
    """Return a context directory as a tar.gz file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


def _config(title: str, **searcher: Any) -> dict[str, Any]:
    return {
        "name": title,
        "description": None,
        "labels": ["digits"],
        "entrypoint": "model_def:LineTrial",
        "data": {},
        "debug": False,
        "bind_mounts": [],
        "environment": {"image": {"cpu": "determinedai/pytorch:cpu"}, "registry_auth": None},
        "hyperparameters": {
            "width": {"type": "const", "val": 3},
            "lr": {"type": "double", "minval": 0.1, "maxval": 0.5, "count": None},
            "global_batch_size": {"type": "const", "val": 4},
        },
        "searcher": {
            "metric": "validation_loss",
            "smaller_is_better": True,
            "source_trial_id": None,
            "source_checkpoint_uuid": None,
            "max_length": {"batches": 8},
            **searcher,
        },
        "resources": {"slots_per_trial": 1, "resource_pool": "gpus", "priority": None},
        "checkpoint_storage": {
            "type": "shared_fs",
            "host_path": HOST_PATH,
            "storage_path": "checkpoints",
            "propagation": "rprivate",
            "save_experiment_best": 0,
            "save_trial_best": 1,
            "save_trial_latest": 1,
        },
        "max_restarts": 5,
        "min_validation_period": {"batches": 0},
        "reproducibility": {"experiment_seed": 1696350000},
        "scheduling_unit": 100,
        "log_policies": [],
        "pinned_by_a_later_version": "x",
    }


def _experiment(number: int, state: str, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    code = packed({"model_def.py": CODE, "data/words.txt": "ä\tb\\n\n"})
    return {
        "id": number,
        "state": state,
        "config": config,
        "model_definition": code,
        "start_time": _AT.format(0, number),
        "end_time": None if state == "ACTIVE" else _AT.format(30, number),
        "archived": False,
        "notes": "",
        "progress": 1.0,
        "original_config": "name: line\n",
        "project_id": 1,
        **more,
    }


def _run(number: int, experiment: int, state: str, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "experiment_id": experiment,
        "state": state,
        "hparams": {"width": 3, "lr": number / 10, "global_batch_size": 4},
        "restarts": 0,
        "total_batches": 8,
        "start_time": _AT.format(1, number),
        "end_time": None if state == "ACTIVE" else _AT.format(20, number),
        **more,
    }


def _report(number: int, trial: int, group: str, batches: int, **more: Any) -> dict[str, Any]:
    loss: Any = 1 / batches if trial < 3 else "NaN"
    stored: dict[str, Any] = {"avg_metrics": {"loss": loss}}
    if group == "validation":
        stored = {"num_inputs": 8, "validation_metrics": {"validation_loss": loss}}
    elif group == "training":
        stored["batch_metrics"] = [{"loss": loss}] * 4
    partitions = {"training": "TRAINING", "validation": "VALIDATION"}
    return {
        "id": number,
        "trial_id": trial,
        "end_time": _AT.format(2, number),
        "metrics": stored,
        "total_batches": batches,
        "archived": False,
        "metric_group": group,
        "partition_type": partitions.get(group, "GENERIC"),
        **more,
    }


def _checkpoint(number: int, uuid: str, trial: int, batches: int, state: str) -> dict[str, Any]:
    return {
        "id": number,
        "uuid": uuid,
        "task_id": f"1.trial-{trial}",
        "report_time": _AT.format(3, number),
        "state": state,
        "resources": {"state_dict.pth": 1000, "metadata.json": 24, "code/": 0},
        "metadata": {"steps_completed": batches, "framework": "torch-1.12.1"},
    }


def _line(number: int, trial: int, text: str, **more: Any) -> dict[str, Any]:
    at = _AT.format(4, number)
    return {"id": number, "task_id": f"1.trial-{trial}", "log": text, "timestamp": at, **more}


_NAMED = {"creation_time": _AT.format(5, 0), "last_updated_time": _AT.format(5, 1), "user_id": 1}
ROWS: dict[str, list[dict[str, Any]]] = {
    "cluster_id": [{"cluster_id": CLUSTER}],
    "users": [{"id": 1, "username": "ann", "password_hash": "$2a$10$hash", "active": True}],
    "jobs": [{"job_id": "j1", "job_type": "EXPERIMENT", "owner_id": 1}],
    "experiments": [
        _experiment(1, "COMPLETED", _config("line", name="single"), notes="The best one."),
        _experiment(
            2, "COMPLETED", _config("lines", name="random", max_trials=2), archived=True
        ),
        _experiment(3, "ACTIVE", _config("more", name="single")),
        _experiment(4, "CANCELED", _config("none", name="single")),
    ],
    "runs": [
        _run(1, 1, "COMPLETED", restarts=1),
        _run(2, 2, "COMPLETED"),
        _run(3, 2, "ERROR", total_batches=4),
        _run(4, 3, "ACTIVE", total_batches=4),
    ],
    "trials_v2": [{"run_id": n, "request_id": f"r{n}", "seed": n} for n in (1, 2, 3, 4)],
    "run_id_task_id": [{"run_id": n, "task_id": f"1.trial-{n}"} for n in (1, 2, 3, 4)],
    "metrics": [
        _report(1, 1, "training", 4, archived=True),  # trained again after the restart
        _report(2, 1, "training", 4),
        _report(3, 1, "validation", 4),
        _report(4, 1, "training", 8),
        _report(5, 1, "validation", 8),
        _report(6, 2, "training", 4),
        _report(7, 2, "validation", 8),
        _report(8, 2, "inference", 8),
        _report(9, 3, "validation", 4),
        _report(10, 4, "training", 4),
    ],
    "checkpoints_v2": [
        _checkpoint(1, DELETED, 1, 4, "DELETED"),
        _checkpoint(2, KEPT, 1, 8, "COMPLETED"),
        _checkpoint(3, OTHER, 2, 8, "PARTIALLY_DELETED"),
    ],
    "run_checkpoints": [
        {"run_id": 1, "checkpoint_id": DELETED},
        {"run_id": 1, "checkpoint_id": KEPT},
        {"run_id": 2, "checkpoint_id": OTHER},
    ],
    "task_logs": [
        _line(1, 1, "begins\n", level="INFO", rank_id=0),
        _line(2, 1, "a\ttab and a back\\slash", level="WARNING", rank_id=1, stdtype="stderr"),
    ],
    "models": [
        {"id": 1, "name": "line", "description": "A line", "metadata": {"use": "test"},
         "labels": ["best, of all", 'a "quote"'], "notes": "Long.", **_NAMED},
    ],
    "model_versions": [
        {"id": 1, "version": 1, "checkpoint_uuid": KEPT, "model_id": 1, "name": "first",
         "comment": "", "labels": ["x"], "metadata": {"n": 1}, "notes": "", **_NAMED},
        {"id": 2, "version": 2, "checkpoint_uuid": DELETED, "model_id": 1, "name": "",
         "comment": "gone", "labels": None, "metadata": None, "notes": "", **_NAMED},
    ],
}  # fmt: skip
