"""Starts the ranks of a gang: forked by the fork server of their interpreter, or else spawned."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from det_jupyter.agent.starting.rank_processes import RankProcesses, StartFailed
from det_jupyter.agent.starting.spawn import Spawner
from det_jupyter.agent.starting.zygotes import Zygote, Zygotes
from det_jupyter.contract.host.processes import is_frozen
from det_jupyter.contract.messages import GangPlan, RankSpec, ZygoteReady
from det_jupyter.errors import LaunchError

logger = logging.getLogger(__name__)

_WARMUP_S = 60.0  # how long a gang waits for a fork server to import torch
_CHECK_S = 1.0  # how often it checks meanwhile whether the fork server is stopped


class Launcher:
    """Starts gangs; used by the Runner."""

    def __init__(self, zygotes: Zygotes, spawner: Spawner) -> None:
        self._zygotes = zygotes
        self._spawner = spawner

    async def launch(
        self,
        plan: GangPlan,
        make_specs: Callable[[], list[RankSpec]],
        end_ordered: asyncio.Event,
    ) -> RankProcesses | None:
        """Start all ranks; return None if the end was ordered before any rank existed.

        After a request to fork, the answer is awaited even if the end is ordered meanwhile:
        otherwise ranks could exist that this agent has no record of. If the request is refused,
        some ranks may have run already and used the store of the rendezvous. So on one computer
        new interpreters are started, with another store. On several computers the store is shared
        with ranks elsewhere that still run, so StartFailed is raised.

        Args:
            make_specs: Returns the specs of the ranks, new ones for each attempt.
            end_ordered: Is set when the gang must end.

        Raises:
            LaunchError: The interpreter cannot run these ranks.
            StartFailed: They could not be started; another attempt may succeed.
        """
        zygote = await self._zygotes.get(plan.python)
        ready = await _readiness(zygote, end_ordered)
        if end_ordered.is_set():
            return None
        if ready is not None:
            _check_cuda(plan, ready)
        if ready is not None:
            reason = ready.unsafe
        elif is_frozen(zygote.pid):
            reason = (
                f"the zygote (process {zygote.pid}) is stopped; `kill -CONT {zygote.pid}` wakes it"
            )
        else:
            reason = f"the zygote was not ready after {_WARMUP_S:.0f} s"
        reason = reason or zygote.problem
        if not reason:
            specs = make_specs()
            answer = await zygote.fork_gang(specs)
            if isinstance(answer, RankProcesses):
                return answer
            if end_ordered.is_set():
                return None
            reason = answer.reason
            if specs[0].network is not None:
                raise StartFailed(f"the ranks on {socket.gethostname()} did not start: {reason}")
        logger.warning("allocation=%s: ranks are started afresh: %s", plan.allocation_id, reason)
        return self._spawner.spawn_gang(make_specs(), note=f"started afresh: {reason}")


async def _readiness(zygote: Zygote, end_ordered: asyncio.Event) -> ZygoteReady | None:
    """Wait until the fork server is ready.

    Returns:
        None if it takes too long or is stopped, or if the gang's end was ordered.
    """
    ready = asyncio.create_task(zygote.ready())
    ended = asyncio.create_task(end_ordered.wait())
    deadline = time.monotonic() + _WARMUP_S
    num_frozen = 0  # checks in a row: a traced process stops for an instant now and then
    while num_frozen < 2 and (left := deadline - time.monotonic()) > 0:
        await asyncio.wait(
            {ready, ended}, timeout=min(left, _CHECK_S), return_when=asyncio.FIRST_COMPLETED
        )
        if ready.done() or ended.done():
            break
        num_frozen = num_frozen + 1 if is_frozen(zygote.pid) else 0
    ended.cancel()
    if ready.done():
        return ready.result()
    ready.cancel()
    return None


def _check_cuda(plan: GangPlan, ready: ZygoteReady) -> None:
    """Raise LaunchError if the slots are GPUs and torch has no CUDA: every rank would fail."""
    if ready.torch_cuda is None and any(slot.kind == "cuda" for slot in plan.slots):
        raise LaunchError(
            f"the torch of {plan.python} is built without CUDA but the slots are GPUs; install "
            "a CUDA build of torch there, or set DET_JUPYTER_CPU_SLOTS to train on CPU cores"
        )
