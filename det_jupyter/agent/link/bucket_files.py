"""Checkpoints in buckets, for the runs of an agent: checked, fetched, and kept as copies.

A rank writes and reads folders of this computer only (`copies` in the data folder). What a run
starts from is fetched before its ranks start, other checkpoints when its code reads them
(core/wanted.py). Where a run saves is checked before its first batch, once for a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.errors import BucketProblem, LaunchError
from det_jupyter.storage.buckets.storage import BucketStorage, copies_dir

logger = logging.getLogger(__name__)

_CHECKED_S = 600.0  # how long a check is valid
_AWAY_S = 5.0  # pause while a bucket does not answer
_COMING_S = 600.0  # how long to wait for a checkpoint that is on its way to the bucket
_POLL_S = 0.5


class BucketFiles:
    """The copies of checkpoints on this computer, and the buckets that were checked."""

    def __init__(self) -> None:
        self._checked: dict[str, float] = {}  # by location: monotonic time
        # By checkpoint: several runs may need the same one.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prepare(self, run: AgentRun) -> None:
        """Fetch what a run starts from, and check where it saves. Waits while a bucket is away.

        Raises:
            LaunchError: Its ranks could not save, or what they start from cannot be read.
            OSError: This computer's disk fails.
        """
        plan = run.plan
        starts = {"checkpoint": plan.checkpoint, "warm_start": plan.warm_start}
        try:
            changed = {
                name: ref.model_copy(update={"path": str(await self._fetch(run, ref.path))})
                for name, ref in starts.items()
                if ref is not None and is_in_bucket(ref.path)
            }
            if changed:
                run.set_plan(plan.model_copy(update=changed))
            if plan.bucket:
                run.dir.wanted.mkdir(mode=0o700, exist_ok=True)
                run.dir.unsent.mkdir(mode=0o700, exist_ok=True)
                await self._check(run)
        except BucketProblem as problem:
            raise LaunchError(f"checkpoint_storage: {problem}") from None
        finally:
            run.upload_wait = None

    async def _check(self, run: AgentRun) -> None:
        storage = BucketStorage(run.plan.bucket)
        checked_at = self._checked.get(storage.location)
        if checked_at is None or time.monotonic() - checked_at > _CHECKED_S:
            await _when_there(run, storage, storage.check_writable)
            self._checked[storage.location] = time.monotonic()

    async def fetch_wanted(self, run: AgentRun, uuid: str, *, is_saved: bool) -> None:
        """Fetch a checkpoint that a rank reads.

        Args:
            run: The run of the rank.
            uuid: The checkpoint.
            is_saved: Whether the run has saved it, so that it may be on its way to the bucket.

        Raises:
            BucketProblem: It is not in the run's bucket.
        """
        deadline = time.monotonic() + _COMING_S
        while True:
            try:
                await self._fetch(run, f"{run.plan.bucket}/{uuid}")
                return
            except BucketProblem as problem:
                is_coming = is_saved and problem.kind == "absent"
                if not is_coming or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_POLL_S)

    async def _fetch(self, run: AgentRun, path: str) -> Path:
        location, _, uuid = path.rpartition("/")
        storage, folder = BucketStorage(location), copies_dir(paths.data_dir()) / uuid
        async with self._locks[uuid]:
            if folder.is_dir():
                os.utime(folder)  # for `remove_unused`
                return folder
            draft = folder.with_name(f".fetched-{uuid}")

            def download() -> None:
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir(mode=0o700, parents=True)
                storage.download(uuid, draft)

            await _when_there(run, storage, download)
            draft.rename(folder)
        return folder


async def _when_there(run: AgentRun, storage: BucketStorage, do: Callable[[], None]) -> None:
    """Do something with a bucket; while it is away, the run's state says so."""
    while True:
        try:
            return await in_thread(do)
        except BucketProblem as problem:
            if problem.kind != "away":
                raise
            logger.info("allocation=%s waits: %s", run.id, problem)
            run.note_upload_wait(storage.location, str(problem), holds=True)
        await asyncio.sleep(_AWAY_S)
