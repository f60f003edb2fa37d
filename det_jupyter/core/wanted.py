"""Reads of checkpoints that are not on this computer yet.

If agents upload its checkpoints, a rank requests them from the agent of its run:

    wanted/X.json    written by a rank: the uuid
    wanted/X.done    written by the agent: why the checkpoint could not be fetched, or nothing

The folder exists only in runs whose checkpoints go to a bucket, or that are on other computers
than the master's. In other runs no request is needed: a checkpoint of several computers appears
when all agents have uploaded their shares.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import CheckpointStorage

_POLL_S = 0.05
_LONGEST_S = 24 * 3600.0  # agents limit their attempts; without an agent, its ranks are ended


def fetch(wanted: Path, uuid: str, *, is_saved: bool) -> None:
    """Let the agent fetch a checkpoint into its folder of checkpoints.

    Args:
        wanted: The folder `wanted` of the run.
        uuid: The checkpoint.
        is_saved: Whether this run has saved it, so that it may be on its way.

    Raises:
        CheckpointError: It could not be fetched.
    """
    request = wanted / f"{os.getpid()}-{time.monotonic_ns()}.json"
    answer = request.with_suffix(".done")
    paths.write_private(request, json.dumps({"uuid": uuid, "is_saved": is_saved}))
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        try:
            problem = answer.read_text(encoding="utf-8")
        except FileNotFoundError:
            time.sleep(_POLL_S)
            continue
        answer.unlink()
        if problem:
            raise CheckpointError(
                f"checkpoint {uuid} is not on this computer, and could not be fetched: {problem}. "
                "A trial can read the checkpoints of its own experiment and the one that it "
                "starts from; on another computer than the master's, any other needs a folder or "
                "bucket that both reach, as checkpoint_storage"
            )
        return
    raise CheckpointError(f"checkpoint {uuid}: the agent has not fetched it within a day")


def await_shares(storage: CheckpointStorage, uuid: str) -> None:
    """Wait until the master has made a checkpoint of the shares of several computers.

    Args:
        storage: The master's own folder, on its computer.
        uuid: The checkpoint.

    Raises:
        CheckpointError: The shares have not arrived.
    """
    deadline = time.monotonic() + _LONGEST_S
    while not storage.files(uuid):
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"checkpoint {uuid}: the agents have not uploaded all files of it within a day"
            )
        time.sleep(_POLL_S)
