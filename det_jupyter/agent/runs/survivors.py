"""Waits for the ranks of a gang that save something, when other ranks were killed or lost.

A rank of a PyTorchTrial that loses another one saves what both have trained, if it can
(pytorch/training/last_step.py), and exits. So the gang, or its part on this computer, is not ended
before. Neither is it while a rank of any trial writes a checkpoint, for a pause for example, which
it finishes without the others: there is no limit as long as it reads or writes.

Other computers may be silent instead of gone: then the ranks here wait in a collective, so the
control page says that they have to close their connections. Ranks of NCCL do not notice that
another one has ended, so the page says that, too (pytorch/training/exchange_watch.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing, suppress

import psutil

from det_jupyter.agent.runs.active_run import ActiveRun
from det_jupyter.agent.starting.rank_processes import RankExit
from det_jupyter.agent.tunnel.part import LinkedPart
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.run.control_page import ControlPage, OpenDraft
from det_jupyter.contract.run.step_page import SAVE_S, Phase, StepPage, phases

logger = logging.getLogger(__name__)

_NOTICE_S = 10.0  # how long ranks may take for their part of a batch, until they notice
_LOOK_S = 0.01
_MOVED_BYTES = 1 << 20  # read or written: progress of a checkpoint


async def saved_by_survivors(active: ActiveRun, failed: RankExit | None = None) -> None:
    """Wait until the ranks that survive have saved the last step, or do not save it.

    The last step is not waited for if the gang has no step pages, or a rank here has failed by
    itself; a checkpoint that is being written is. The gang's end may be ordered meanwhile.

    Args:
        active: The run.
        failed: The rank here that has ended first; None: ranks on other computers have ended.
    """
    folder, pids = active.run.dir, active.gang.pids
    pages = [folder.step(rank) for rank in pids if failed is None or rank != failed.rank]
    if failed is not None and not _has_lost_others(active, failed):
        pages = []
    if failed is not None and any(path.exists() for path in pages):
        _note(active, ControlPage.note_killed)
    loop = asyncio.get_running_loop()
    began = since = loop.time()
    last: tuple[OpenDraft | None, set[Phase]] = None, set()
    moved_bytes = 0
    while not active.end_ordered.is_set():
        draft, found = now = _draft_of(active), set(phases(pages))
        if Phase.SAVED in found or (draft is None and found <= {Phase.FAILED, Phase.DONE}):
            break
        # What is written may be an older checkpoint of the process that saves the last step.
        is_writing = draft is not None and (Phase.SAVING in found or not draft.is_written)
        io_bytes = _io_bytes(draft.pid) if draft is not None else 0
        if now != last or (is_writing and io_bytes > moved_bytes + _MOVED_BYTES):
            last, moved_bytes, since = now, io_bytes, loop.time()
        is_saving = is_writing or found & {Phase.READY, Phase.SAVING}
        if loop.time() - since > (SAVE_S if is_saving else _NOTICE_S):
            break
        await asyncio.sleep(_LOOK_S)
    logger.info(
        "allocation=%s: after %.2f s without %s the others have saved or ended",
        active.run.id,
        loop.time() - began,
        "ranks on other computers" if failed is None else f"rank {failed.rank}",
    )


def _draft_of(active: ActiveRun) -> OpenDraft | None:
    """Return the checkpoint that a process of the gang here is writing; None: there is none."""
    with suppress(OSError, ValueError), closing(ControlPage(active.run.dir.control)) as page:
        draft = page.draft()
        return draft if draft is not None and birth_of(draft.pid) is not None else None
    return None


def _io_bytes(pid: int) -> int:
    """Return how many bytes a process has read and written; 0 where that is not known."""
    with suppress(psutil.Error, AttributeError):  # macOS counts none
        io = psutil.Process(pid).io_counters()
        return int(io.read_chars + io.write_chars)
    return 0


def _has_lost_others(active: ActiveRun, failed: RankExit) -> bool:
    """Return whether a rank was killed, or has failed because another one was."""
    if not failed.exit_code:
        return False
    if failed.exit_code < 0:
        return True
    path = active.run.dir.step(failed.rank)
    with suppress(OSError, ValueError), closing(StepPage(path)) as page:
        return page.phase not in (Phase.TRAINING, Phase.FAILED)
    return False


def end_part(active: ActiveRun) -> None:
    """End the ranks here, because those on other computers have ended: let them save before."""
    if active.ending is None:
        active.ending = asyncio.create_task(_end_part(active))


async def _end_part(active: ActiveRun) -> None:
    await _saved_without_others(active)
    active.kill()


async def watch_part(active: ActiveRun, part: LinkedPart) -> None:
    """End the ranks here when they are cut off from those on another computer; cancelled else."""
    cut = await part.watch()
    active.gang.note_cut(cut)  # ranks that save and exit before the end have not failed
    await _saved_without_others(active)
    active.cut_off(cut)


async def _saved_without_others(active: ActiveRun) -> None:
    _note(active, ControlPage.note_parted)
    await saved_by_survivors(active)


def _note(active: ActiveRun, write: Callable[[ControlPage], None]) -> None:
    with suppress(OSError, ValueError), closing(ControlPage(active.run.dir.control)) as page:
        write(page)
