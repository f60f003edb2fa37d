"""`python -m det_jupyter.agent.unmanaged FOLDER`: sends the folder of a run to the master.

With `--live`, the run's process holds the other end of stdin: it goes on until that is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from det_jupyter.agent.unmanaged.follower import Follower
from det_jupyter.connection import Session, connect
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.inheritance import start_clean
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import GangPlan, StartUnmanaged, UnmanagedStart
from det_jupyter.contract.run.unmanaged import Announcement, Result, request_file, sources_file
from det_jupyter.errors import DetError, MasterStopped, MasterUnreachable, ProtocolMismatch

logger = logging.getLogger(__name__)

_CUT = "it was ended while it was silent; what it had not sent is only in this folder"
_OFFLINE = (MasterUnreachable, MasterStopped, ProtocolMismatch)


def main() -> int:
    """Follow the run, or send one that is over; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m det_jupyter.agent.unmanaged")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    folder = options.folder.resolve()
    start_clean(keeps_share=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs each request
    try:
        session = connect()
        request, start = _start(session, folder, is_live=options.live)
    except DetError as error:
        is_offline = isinstance(error, _OFFLINE)
        result: Result = "offline" if is_offline else "refused"
        _announce(Announcement(result=result, text=str(error)))
        return 1
    number = start.experiment_id
    if start.plan is None:
        text = _CUT if start.is_cut else ""
        _announce(Announcement(result="stored", experiment_id=number, text=text))
        return 0
    follower = Follower(session, request, start.plan, RunDir(folder), is_live=options.live)
    if options.live:
        paths.write_private(RunDir(folder).plan, start.plan.model_dump_json())
        _announce(Announcement(result="began", experiment_id=number))
    is_stored = asyncio.run(follower.run())
    if not options.live:
        result = "stored" if is_stored else "offline"
        _announce(Announcement(result=result, experiment_id=number, text=follower.problem))
    elif is_stored:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_stored else 1


def _start(
    session: Session, folder: Path, *, is_live: bool
) -> tuple[StartUnmanaged, UnmanagedStart]:
    request = StartUnmanaged.model_validate_json(request_file(folder).read_bytes())
    blobs = BlobStore.of(paths.data_dir())
    sources = blobs.put(sources_file(folder).read_bytes())
    capsule = request.capsule.model_copy(update={"sources": sources})
    begun_from = None if is_live else _begun_from(RunDir(folder))
    request = request.model_copy(update={"capsule": capsule, "begun_from": begun_from})
    body = request.model_dump(mode="json", exclude={"kind"})
    answer = session.post(StartUnmanaged.path, body, repeatable=True)
    return request, UnmanagedStart.model_validate(answer)


def _begun_from(folder: RunDir) -> str:
    """Return the uuid of the checkpoint from which a run has begun; "": from none."""
    with suppress(OSError, ValidationError):  # it was killed before it had a plan
        plan = GangPlan.model_validate_json(folder.plan.read_bytes())
        return plan.checkpoint.uuid if plan.checkpoint is not None else ""
    return ""


def _announce(announcement: Announcement) -> None:
    with suppress(BrokenPipeError):  # the run's process has ended meanwhile
        print(announcement.model_dump_json(), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # no more is read


if __name__ == "__main__":
    sys.exit(main())
