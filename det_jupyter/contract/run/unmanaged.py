"""The folder of a run that a user has started by hand, and what its follower prints.

    request.json    the StartUnmanaged, without the digest of the sources
    sources.json    source of the script, as the blob of a capsule has it
    ...             as in the folder of each run (host/rundir.py)

The process writes it. Its follower (agent/unmanaged/) sends it to the master, and prints one line:
an Announcement.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import CheckpointRef, StartUnmanaged
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.run.journal import CheckpointDeleted, CheckpointSaved, Record, parse_line

FOLLOWER = "det_jupyter.agent.unmanaged"  # the module of the follower's program

Result = Literal["began", "stored", "offline", "refused"]


class Announcement(Wire):
    """What a follower has done.

    began: the run has begun; `plan.json` has its plan.
    stored: the master has all of it.
    offline: no master can be reached or started.
    refused: the master refuses the run.
    """

    result: Result
    experiment_id: int = 0
    text: str = ""  # the reason


def unmanaged_runs(data_dir: Path) -> Path:
    """Return the folder of the runs that are followed while they run."""
    return data_dir / "unmanaged"


def offline_runs(data_dir: Path) -> Path:
    """Return the folder of the runs that were written without a master."""
    return data_dir / "offline"


def request_file(folder: Path) -> Path:
    return folder / "request.json"


def sources_file(folder: Path) -> Path:
    return folder / "sources.json"


def whole_records(journal: Path) -> list[Record]:
    """Return the records of a journal; lines that are no records are left out."""
    found = []
    try:
        lines = journal.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    for line in filter(None, lines):
        try:
            found.append(parse_line(line))
        except ValueError:  # its writer was killed, or is of another version
            continue
    return found


def latest_offline(data_dir: Path, name: str) -> CheckpointRef | None:
    """Return the last checkpoint of the newest run of this name that was written offline.

    Those whose files a master has deleted since do not count.
    """
    found = []
    for folder in offline_runs(data_dir).glob("*"):
        with suppress(OSError, ValueError):  # not one of ours
            request = StartUnmanaged.model_validate_json(request_file(folder).read_bytes())
            if request.config.get("name") == name:
                found.append((request.started_at, folder))
    for _, folder in sorted(found, reverse=True):
        records = whole_records(RunDir(folder).journal(0))
        gone = {each.uuid for each in records if isinstance(each, CheckpointDeleted)}
        for one in reversed(records):
            if not isinstance(one, CheckpointSaved) or one.uuid in gone:
                continue
            if os.path.isdir(one.path):
                return CheckpointRef(
                    uuid=one.uuid, path=one.path, steps_completed=one.steps_completed
                )
    return None
