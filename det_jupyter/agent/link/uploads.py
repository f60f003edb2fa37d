"""Uploads what ranks saved here: checkpoints to the master's computer or to a bucket, and traces.

    a rank saves            into this computer's data folder
    its record is held back until the destination has the files, with the journal after it
    its record is sent      with the path of the files there

So training does not wait for an upload, and records refer only to files that are stored. The end
of a run is reported after its last checkpoint was uploaded. Of a run that the master has given up,
nothing is uploaded to the master, which ignores its records.

An upload that fails is tried again, for GIVE_UP_S. After that, a trace is reported as failed; for
a checkpoint, the run is ended with an error, and no later records of its journals are sent.
Failures while the destination is away, and before, do not count: the run's state says so.
Ranks whose checkpoints go to a bucket wait while several of them are not uploaded: each has a file
in the run's folder `unsent` (contract/run/room.py).

Ranks on several computers without a shared folder have each written a share of a checkpoint
(core/sharded.py). Each agent uploads its shares, the agent on the master's computer too, and holds
its journals back until the destination has all of them.

The copies on this computer are kept until the run is closed, because its code may read and delete
them. After that only the latest is kept, from which another run on this computer may start. A
share alone is useless, so it is removed when the checkpoint is stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from det_jupyter.agent.link.destinations import Bucket, MasterFolder, UploadDestination
from det_jupyter.agent.link.fetching import remove_folder
from det_jupyter.agent.link.sending import RequestRefused
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.contract.messages import AgentCredentials, Chunk
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    CheckpointShare,
    Notice,
    TraceSaved,
    parse_line,
    to_line,
)
from det_jupyter.contract.values.pauses import growing_pauses
from det_jupyter.contract.values.text import error_text, size
from det_jupyter.errors import BucketProblem
from det_jupyter.storage.buckets.storage import copies_dir

logger = logging.getLogger(__name__)

GIVE_UP_S = 60.0  # how long an upload is tried again
_OF_KILLED_S = 3.0  # the same, if the run was killed: its slots are to be free soon
_LEAST_FAILURES = 3  # before giving up: one attempt with a large checkpoint may take GIVE_UP_S
_PAUSES_S = (0.2, 5.0)  # first and longest pause between two attempts
_SHARES_POLL_S = 0.5
# How long to wait for the shares of other agents while none of their bytes arrive: ranks may still
# be writing them, unless the gang has ended.
_SHARES_S, _SHARES_AFTER_END_S = 600.0, 30.0
_KINDS = ('"checkpoint"', '"checkpoint_share"', '"trace"')

Attempt: TypeAlias = Callable[[], Coroutine[Any, Any, str | None]]


class BreakOff(Protocol):
    """Ends a run because one of its checkpoints cannot be stored."""

    def __call__(self, run: AgentRun, error: str, *, no_room: bool) -> None: ...


class Uploads:
    """The uploads of an agent.

    Args:
        agent_id: The agent.
        credentials: Credentials of the agent, if the master is on another computer. Without them,
            only shares of checkpoints are uploaded to the master.
        on_done: Called after each upload.
        break_off: Ends a run.
    """

    def __init__(
        self,
        agent_id: str,
        credentials: AgentCredentials | None,
        on_done: Callable[[], None],
        break_off: BreakOff,
    ) -> None:
        self._agent_id = agent_id
        self._credentials = credentials
        self._on_done = on_done
        self._break_off = break_off
        self._traces = paths.data_dir() / "traces"
        # By uuid of a checkpoint or path of a trace: its path at its destination.
        self._stored: dict[str, str] = {}
        self._trace_errors: dict[str, str] = {}  # by path
        self._failed: dict[str, str] = {}  # by run: a checkpoint that cannot be uploaded
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keys: dict[str, set[str]] = {}  # keys of `_tasks`, by run
        self._uploaded: dict[str, list[Path]] = {}  # the copies here, by allocation
        self._notices: dict[str, str] = {}  # by uuid: a line that is sent after the record
        self._measured: set[int] = set()  # experiments of which an upload was measured

    def sendable(self, run: AgentRun, chunk: Chunk) -> Chunk | None:
        """Return the part of a journal's chunk that can be sent now; None if there is none.

        It ends before the first record whose files are not uploaded, and starts their upload.
        """
        if run.id in self._failed:
            return chunk.model_copy(update={"text": self._text_before_failure(run, chunk.text)})
        if not any(kind in chunk.text for kind in _KINDS):
            return chunk
        lines, num_bytes = [], 0
        for line in chunk.text.splitlines(keepends=True):
            sent = self._sendable_line(run, line)
            if sent is None:
                break
            lines.append(sent)
            num_bytes += len(line.encode())
        else:
            num_bytes = chunk.size_bytes
        if not num_bytes:
            return None
        return chunk.model_copy(update={"text": "".join(lines), "size_bytes": num_bytes})

    def _text_before_failure(self, run: AgentRun, text: str) -> str:
        """Return the records before that of the checkpoint which cannot be uploaded; send these.

        The master may not have stored them yet, for example because its disk was full, too.
        """
        end = text.rfind("\n", 0, max(0, text.find(self._failed[run.id]))) + 1
        lines = text[:end].splitlines(keepends=True)
        return "".join(self._sendable_line(run, line) or "" for line in lines)

    def _sendable_line(self, run: AgentRun, line: str) -> str | None:
        """Return the line as it is to be sent; None if its files have not arrived yet."""
        match record := _record_of(line):
            case CheckpointSaved(uuid=uuid) if Path(record.path).parent == _folder_of(run):
                if uuid in self._stored:
                    path = self._stored[uuid]
                    return to_line(replace(record, path=path)) + self._notices.get(uuid, "")
                if self._credentials is None and not run.plan.bucket:  # the folder is the master's
                    return line
                self._begin(run, uuid, self._upload(run, record))
            case CheckpointShare(uuid=uuid):
                if uuid in self._stored:
                    return ""  # for this agent only
                self._begin(run, uuid, self._upload_share(run, record))
            case TraceSaved(path=path) if self._is_trace_here(path):
                if path in self._stored:
                    return to_line(replace(record, path=self._stored[path]))
                if path in self._trace_errors:
                    error = self._trace_errors[path]
                    return to_line(replace(record, path="", size_bytes=0, error=error))
                self._begin(run, path, self._upload_trace(run, path))
            case _:
                return line
        return None

    def _is_trace_here(self, path: str) -> bool:
        return self._credentials is not None and Path(path).is_relative_to(self._traces)

    def remove_copies(self, runs: Collection[str]) -> None:
        """Remove the checkpoints of runs that are not in `runs`, except for the latest of each.

        The state of their uploads is dropped, too: all of their journals are stored.
        """
        for run_id in self._keys.keys() - set(runs):
            self._forget(run_id)
        for allocation_id in self._uploaded.keys() - set(runs):
            folders = self._uploaded.pop(allocation_id)
            key = f"remove {allocation_id}"
            self._tasks[key] = asyncio.create_task(self._remove(key, folders[:-1]))

    def _forget(self, run_id: str) -> None:
        keys = self._keys[run_id]
        if all(self._tasks[key].done() for key in keys):
            for known in (self._stored, self._trace_errors, self._notices, self._tasks):
                for key in keys & known.keys():
                    del known[key]
            del self._keys[run_id]
            self._failed.pop(run_id, None)

    async def _remove(self, key: str, folders: Iterable[Path]) -> None:
        for folder in folders:
            await asyncio.to_thread(remove_folder, folder)
        del self._tasks[key]

    def _begin(self, run: AgentRun, key: str, upload: Coroutine[Any, Any, None]) -> None:
        if key in self._tasks:
            upload.close()
        else:
            self._tasks[key] = asyncio.create_task(upload)
            self._keys.setdefault(run.id, set()).add(key)

    async def _upload(self, run: AgentRun, record: CheckpointSaved) -> None:
        uuid, folder, began = record.uuid, Path(record.path), time.monotonic()
        to = self._destination(run)

        async def send() -> str | None:
            stored = await to.send(uuid, folder)
            return None if stored is None else stored.path

        try:
            path = await self._try(f"checkpoint {uuid}", send, to, run)
        except Exception as error:  # the error of the last attempt
            self._give_up(run, uuid, error)
        else:
            if path:
                self._measure(run, record, to, time.monotonic() - began)
            # Of one that its rank has deleted, the record of that is next.
            deleted = f"{run.plan.bucket}/{uuid}" if run.plan.bucket else record.path
            self._stored[uuid] = path or deleted
            if folder.is_dir():
                self._uploaded.setdefault(run.id, []).append(folder)
            (run.dir.unsent / uuid).unlink(missing_ok=True)
        self._on_done()

    async def _upload_share(self, run: AgentRun, record: CheckpointShare) -> None:
        """Upload a share, and wait until the others are there too."""
        uuid, folder = record.uuid, Path(record.path)
        to = self._destination(run)

        async def send() -> str | None:
            stored = await to.send(uuid, folder, record.share, record.num_shares)
            while stored is not None and not stored.path:
                if stored.silent_s > (_SHARES_S if run.is_alive else _SHARES_AFTER_END_S):
                    raise _SharesMissing("files of it on other computers were not uploaded")
                await asyncio.sleep(_SHARES_POLL_S)
                stored = await to.commit(uuid, folder, record.share, record.num_shares)
            return None if stored is None else stored.path

        try:
            path = await self._try(f"checkpoint {uuid}", send, to, run)
        except _SharesMissing as error:
            if record.share == 0:
                self._give_up(run, uuid, error)
            path = None  # another agent's share is missing: the chief reports that
        except Exception as error:  # the error of the last attempt
            self._give_up(run, uuid, error)
            path = None
        self._stored[uuid] = path or str(_folder_of(run) / uuid)
        await asyncio.to_thread(remove_folder, folder)
        (run.dir.unsent / uuid).unlink(missing_ok=True)
        self._on_done()

    def _destination(self, run: AgentRun) -> UploadDestination:
        if run.plan.bucket:
            return Bucket(run.plan.bucket)
        return MasterFolder(self._credentials, self._agent_id, run.id)

    async def _upload_trace(self, run: AgentRun, path: str) -> None:
        to = MasterFolder(self._credentials, self._agent_id, run.id)
        try:
            stored = await self._try(path, lambda: to.send_trace(Path(path)), to)
            self._stored[path] = stored or path
        except Exception as error:  # the error of the last attempt
            logger.error("%s is not uploaded: %s", path, error_text(error))
            self._trace_errors[path] = (
                f"it could not be uploaded from agent {self._agent_id}: {_reason(error)}"
            )
        self._on_done()

    async def _try(
        self, what: str, send: Attempt, to: UploadDestination, run: AgentRun | None = None
    ) -> str | None:
        """Return the result of `send`; if it fails for GIVE_UP_S, raise its last error.

        While the destination is away, or waits for room, `run` has that as its state.
        """
        try:
            return await self._try_long(what, send, to, run)
        finally:
            if run is not None:
                run.upload_wait = None

    async def _try_long(
        self, what: str, send: Attempt, to: UploadDestination, run: AgentRun | None
    ) -> str | None:
        failing_since, num_failures = 0.0, 0
        pauses, longest_s = growing_pauses(*_PAUSES_S), _PAUSES_S[1]
        while True:
            try:
                return await send()
            except Exception as error:  # an answer, the network, a disk here
                wait = await to.find_wait(error, run)
                if wait is not None:
                    logger.info("%s is uploaded again: %s", what, error_text(error))
                    if run is not None:
                        run.note_upload_wait(to.name, wait)
                    num_failures = 0
                    await asyncio.sleep(longest_s)
                    continue
                if run is not None:
                    run.upload_wait = None
                num_failures += 1
                if num_failures == 1:
                    failing_since = time.monotonic()
                is_killed = run is not None and run.is_killed
                limit_s, least = (_OF_KILLED_S, 1) if is_killed else (GIVE_UP_S, _LEAST_FAILURES)
                is_late = time.monotonic() - failing_since >= limit_s
                if isinstance(error, _SharesMissing) or (is_late and num_failures >= least):
                    raise
                logger.warning("%s is uploaded again: %s", what, error_text(error))
            await asyncio.sleep(next(pauses))

    def _give_up(self, run: AgentRun, uuid: str, error: Exception) -> None:
        logger.error("checkpoint %s is not uploaded, so its run ends: %s", uuid, error_text(error))
        self._failed[run.id] = uuid
        is_full = error.no_room if isinstance(error, RequestRefused) else is_no_room(error)
        what = f"checkpoint {uuid} could not be uploaded from agent {self._agent_id}"
        self._break_off(run, f"{what}: {_reason(error)}", no_room=is_full)

    def _measure(
        self, run: AgentRun, record: CheckpointSaved, to: UploadDestination, seconds: float
    ) -> None:
        """Report size and time of an experiment's first upload, which shows what to expect."""
        if run.plan.experiment_id in self._measured:
            return
        self._measured.add(run.plan.experiment_id)
        text = (
            f"checkpoints are uploaded from agent {self._agent_id} to {to.name} while the "
            f"training goes on; the first, {size(record.size_bytes)}, took {seconds:.1f} s"
        )
        self._notices[record.uuid] = to_line(Notice(at=time.time(), rank=0, text=text))

    async def close(self) -> None:
        """Stop the uploads; the next agent process does those that are not complete."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class _SharesMissing(Exception):
    """Agents of the gang have not uploaded their files of a checkpoint."""


def _folder_of(run: AgentRun) -> Path:
    """Return the folder on this computer that checkpoints of a run are saved in."""
    data_dir = paths.data_dir()
    return copies_dir(data_dir) if run.plan.bucket else data_dir / "checkpoints"


def _reason(error: Exception) -> str:
    """Return the message of an error of an upload."""
    is_ours = isinstance(error, RequestRefused | BucketProblem | _SharesMissing)
    return str(error) if is_ours else error_text(error)


def _record_of(line: str) -> object:
    if not any(kind in line for kind in _KINDS):
        return None
    try:
        return parse_line(line)
    except ValueError:  # the master quarantines the line
        return None
