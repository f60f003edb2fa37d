"""Waits for the ranks of a gang that save its last step, when another rank was killed.

A rank of a PyTorchTrial that loses another one saves what both have trained, if it can
(pytorch/training/last_step.py), and exits. So the gang is not ended before.
"""

from __future__ import annotations

import asyncio
import logging

from det_jupyter.agent.runs.active_run import ActiveRun
from det_jupyter.agent.starting.rank_processes import RankExit, has_ended
from det_jupyter.contract.run.step_page import SAVE_S, Phase, phases

logger = logging.getLogger(__name__)

_NOTICE_S = 1.5  # how long ranks may take to notice that another one has ended
_LOOK_S = 0.01


async def saved_by_survivors(active: ActiveRun, failed: RankExit) -> None:
    """Wait until the ranks that survive have saved the last step, or do not save it.

    Returns at once if the rank was not killed by a signal, or the gang has no step pages. The end
    of the gang may be ordered meanwhile.
    """
    if failed.exit_code is None or failed.exit_code >= 0:
        return
    folder, pids = active.run.dir, active.gang.pids
    others = {rank: folder.step(rank) for rank in pids if rank != failed.rank}
    if not any(path.exists() for path in others.values()):
        return
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not active.end_ordered.is_set():
        found = phases(path for rank, path in others.items() if not has_ended(pids[rank]))
        limit_s = SAVE_S if Phase.READY in found else _NOTICE_S
        if set(found) <= {Phase.FAILED, Phase.DONE, Phase.SAVED} or loop.time() - began > limit_s:
            break
        await asyncio.sleep(_LOOK_S)
    logger.info(
        "allocation=%s: after %.2f s without rank %d the others have saved or ended",
        active.run.id,
        loop.time() - began,
        failed.rank,
    )
