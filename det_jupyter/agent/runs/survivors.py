"""Waits for the ranks of a gang that save its last step, when other ranks were killed or lost.

A rank of a PyTorchTrial that loses another one saves what both have trained, if it can
(pytorch/training/last_step.py), and exits. So the gang, or its part on this computer, is not ended
before. Other computers may be silent instead of gone: then the ranks here wait in a collective, so
the control page says that they have to close their connections. Ranks of NCCL do not notice that
another one has ended, so the page says that, too (pytorch/training/exchange_watch.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing, suppress

from det_jupyter.agent.runs.active_run import ActiveRun
from det_jupyter.agent.starting.rank_processes import RankExit
from det_jupyter.agent.tunnel.part import LinkedPart
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.step_page import SAVE_S, Phase, StepPage, phases

logger = logging.getLogger(__name__)

_NOTICE_S = 10.0  # how long ranks may take for their part of a batch, until they notice
_LOOK_S = 0.01


async def saved_by_survivors(active: ActiveRun, failed: RankExit | None = None) -> None:
    """Wait until the ranks that survive have saved the last step, or do not save it.

    Returns at once if the gang has no step pages, or a rank here has failed by itself. The end of
    the gang may be ordered meanwhile.

    Args:
        active: The run.
        failed: The rank here that has ended first; None: ranks on other computers have ended.
    """
    folder, pids = active.run.dir, active.gang.pids
    others = {rank: folder.step(rank) for rank in pids if failed is None or rank != failed.rank}
    if failed is not None and not _has_lost_others(active, failed):
        return
    if not any(path.exists() for path in others.values()):
        return
    if failed is not None:
        _note(active, ControlPage.note_killed)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not active.end_ordered.is_set():
        found = set(phases(others.values()))
        if Phase.SAVED in found or found <= {Phase.FAILED, Phase.DONE}:
            break
        limit_s = SAVE_S if found & {Phase.READY, Phase.SAVING} else _NOTICE_S
        if loop.time() - began > limit_s:
            break
        await asyncio.sleep(_LOOK_S)
    logger.info(
        "allocation=%s: after %.2f s without %s the others have saved or ended",
        active.run.id,
        loop.time() - began,
        "ranks on other computers" if failed is None else f"rank {failed.rank}",
    )


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
