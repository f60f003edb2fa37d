"""Files about a gang that hangs, which are kept when its run is over: `hang.action: dump`."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from det_jupyter.agent.hangs.looking import native_stacks
from det_jupyter.agent.runs.run import Run
from det_jupyter.contract.host import paths

logger = logging.getLogger(__name__)

_MOST_FOLDERS = 20  # the newest are kept


def keep_files(run: Run, pids: Mapping[int, int]) -> Path | None:
    """Copy stacks and flight recorders of the ranks, and write their native stacks.

    Returns:
        The folder; None if it cannot be written.
    """
    folder = paths.data_dir() / "hangs" / run.id
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for rank, pid in pids.items():
            with suppress(FileNotFoundError):
                shutil.copyfile(run.dir.stacks(rank), folder / f"stacks-{rank}.txt")
            with suppress(FileNotFoundError):
                shutil.copyfile(run.dir.recorder(rank), folder / f"recorder-{rank}.json")
            if text := native_stacks(pid):
                paths.write_private(folder / f"native-{rank}.txt", text)
        _remove_oldest(folder.parent)
    except OSError as error:
        logger.warning("allocation=%s: %s cannot be written: %s", run.id, folder, error)
        return None
    return folder


def _remove_oldest(folder: Path) -> None:
    found = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in found[:-_MOST_FOLDERS]:
        shutil.rmtree(path, ignore_errors=True)
