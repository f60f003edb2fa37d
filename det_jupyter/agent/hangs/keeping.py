"""Keeps files about a gang that hangs beyond the end of its run: `hang.action: dump`."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from det_jupyter.agent.hangs.looking import spy
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths

logger = logging.getLogger(__name__)

_MOST_FOLDERS = 20  # the newest are kept
_MOST_TEXT = 20_000


def keep_files(run: AgentRun, pids: Mapping[int, int]) -> Path | None:
    """Copy stacks and flight recorders of the ranks; another thread adds py-spy's stacks.

    py-spy takes up to 5 s for each rank, and while this thread is busy no gang is watched.

    Returns:
        The folder; None if it cannot be written.
    """
    folder = paths.data_dir() / "hangs" / run.id
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for rank in pids:
            with suppress(FileNotFoundError):
                shutil.copyfile(run.dir.stacks(rank), folder / f"stacks-{rank}.txt")
            with suppress(FileNotFoundError):
                shutil.copyfile(run.dir.recorder(rank), folder / f"recorder-{rank}.json")
        _remove_oldest(folder.parent)
    except OSError as error:
        logger.warning("allocation=%s: %s cannot be written: %s", run.id, folder, error)
        return None
    keep = partial(_keep_spied, folder, dict(pids))
    threading.Thread(target=keep, name="py-spy", daemon=True).start()
    return folder


def _keep_spied(folder: Path, pids: Mapping[int, int]) -> None:
    for rank, pid in pids.items():
        if text := spy(pid):
            with suppress(OSError):  # the disk is full
                paths.write_private(folder / f"py-spy-{rank}.txt", text[:_MOST_TEXT])


def _remove_oldest(folder: Path) -> None:
    found = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in found[:-_MOST_FOLDERS]:
        shutil.rmtree(path, ignore_errors=True)
