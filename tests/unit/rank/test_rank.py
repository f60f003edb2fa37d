"""What a rank journals when it fails: whether another try could end otherwise."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.config import parse_config
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import (
    Capsule,
    CheckpointRef,
    GangPlan,
    RankPlace,
    RankSpec,
    SlotView,
)
from det_jupyter.contract.run.journal import RankFailure, parse_line
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, PeerRefused, ProtocolMismatch
from det_jupyter.rank.endings import ExitedWith, describe_exit
from det_jupyter.rank.rank import RankProgram

CHECKPOINT = CheckpointRef(uuid="ckpt10", path="/checkpoints/ckpt10", steps_completed=10)
LOST_WORKER = "DataLoader worker (pid 7) is killed by signal: Killed."


def fail(
    folder: Path, error: BaseException, *, trained: int, checkpoint: CheckpointRef | None
) -> RankFailure:
    """Return what a rank journals that has trained so many batches of its run."""
    config = {
        "entrypoint": "T",
        "searcher": {"name": "single", "metric": "m", "max_length": {"batches": 9}},
    }
    plan = GangPlan(
        allocation_id="1.1.1",
        experiment_id=1,
        trial_id=1,
        run=1,
        python="python3",
        cwd=str(folder),
        slots=[SlotView(id=0, kind="cpu", index=0, name="CPU")],
        config=parse_config(config, default_seed=1).to_document(),
        hparams={},
        seed=1,
        capsule=Capsule(entrypoint="T", payload="a" * 64, sources="b" * 64),
        checkpoint=checkpoint,
        target=Length("batches", 9),
    )
    place: dict[str, Any] = {"master_addr": "127.0.0.1", "master_port": 0}
    rank = RankProgram(
        RankSpec(
            plan=plan,
            place=RankPlace(rank=0, world_size=1, local_rank=0, local_world_size=1, **place),
            run_dir=str(folder),
            data_dir=str(folder),
            socket_dir=str(folder),
            store=str(folder / "store"),
            secret="5e" * 32,
        )
    )
    if trained:
        rank.work = cast(Any, SimpleNamespace(trained=trained, trial=None))
    assert rank.fail(error) == getattr(error, "code", 1)
    (line,) = RunDir(folder).journal(0).read_bytes().splitlines()
    record = parse_line(line)
    assert isinstance(record, RankFailure)
    return record


@pytest.mark.parametrize(
    ("error", "trained", "checkpoint", "is_final"),
    [
        (ValueError("no"), 0, None, True),
        (ValueError("no"), 1, None, False),
        (ValueError("no"), 0, CHECKPOINT, False),  # an earlier run came further
        (ValueError("no"), 1, CHECKPOINT, False),
        (RuntimeError(LOST_WORKER), 0, None, False),
        (PeerRefused("no"), 0, None, False),
        (describe_exit("`./train`", -9), 0, None, False),
        (describe_exit("`./train`", -2), 0, None, False),
        (describe_exit("`./train`", 129), 0, None, False),
        (describe_exit("`./train`", 3), 0, None, True),
        (ConfigError(["context: got 1"]), 5, CHECKPOINT, True),
        (ProtocolMismatch("no"), 0, CHECKPOINT, True),
    ],
)
def test_a_failure_is_final_if_every_run_would_fail_alike(
    tmp_path: Path,
    error: BaseException,
    trained: int,
    checkpoint: CheckpointRef | None,
    is_final: bool,
) -> None:
    failure = fail(tmp_path, error, trained=trained, checkpoint=checkpoint)
    assert failure.final is is_final


def test_an_exit_code_is_told_with_the_line_that_says_why(tmp_path: Path) -> None:
    error = ExitedWith("train.py ended with exit code 2 (sys.exit)", 2)
    RunDir(tmp_path).output(0).write_text("usage: train.py\ntrain.py: error: no --lr\n")
    told = fail(tmp_path, error, trained=0, checkpoint=None)
    assert told.error == f"{error}; it printed at last: train.py: error: no --lr"
