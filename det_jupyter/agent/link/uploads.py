"""Uploads checkpoints and traces that ranks saved here to the master's computer.

    a rank saves            into this computer's data folder, as on the master's computer
    its record is held back until the master has stored the files, with the journal after it
    its record is sent      with the path of the files on the master's computer

So training does not wait for an upload, and records refer only to files that the master has
stored. The end of a run is reported after its last checkpoint was uploaded. Of a run that the
master has given up, nothing is uploaded: the master ignores its records.

An upload that fails is tried again, for GIVE_UP_S. After that, a trace is reported as failed; for
a checkpoint, the run is ended with an error, and no later records of its journals are sent.
Failures do not count while the master answers no request at all: then the agent ends its gangs
anyway.

Ranks on several computers without a shared folder have each written a share of a checkpoint
(core/sharded.py). Each agent uploads its shares, the agent on the master's computer too, and holds
its journals back until the master has all of them.

The copies on this computer are kept until the run is closed, because its code may read and delete
them. After that only the latest is kept, from which another run on this computer may start. A
share alone is useless, so it is removed when the master has the checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from det_jupyter.agent.link.fetching import remove_folder
from det_jupyter.agent.link.master_link import agent_path, open_http
from det_jupyter.agent.link.sending import Refused, commit, send_checkpoint, send_trace
from det_jupyter.agent.runs.run import Run
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
from det_jupyter.contract.values.text import error_text, size
from det_jupyter.errors import MasterUnreachable

logger = logging.getLogger(__name__)

GIVE_UP_S = 60.0  # how long an upload is tried again
_LEAST_FAILURES = 3  # before giving up: one attempt with a large checkpoint may take GIVE_UP_S
_PAUSES_S = (0.2, 5.0)  # first and longest pause between two attempts
_SHARES_POLL_S = 0.5
# How long to wait for the shares of other agents while none of their bytes arrive: ranks may still
# be writing them, unless the gang has ended.
_SHARES_S, _SHARES_AFTER_END_S = 600.0, 30.0
_KINDS = ('"checkpoint"', '"checkpoint_share"', '"trace"')


class BreakOff(Protocol):
    """Ends a run because one of its checkpoints cannot be stored."""

    def __call__(self, run: Run, error: str, *, no_room: bool) -> None: ...


class Uploads:
    """The uploads of an agent to the master.

    Args:
        agent_id: The agent.
        credentials: Credentials of the agent, if the master is on another computer. Without them,
            only shares of checkpoints are uploaded.
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
        self._folder = paths.data_dir() / "checkpoints"
        self._traces = paths.data_dir() / "traces"
        # By uuid of a checkpoint or path of a trace: its path on the master's computer.
        self._stored: dict[str, str] = {}
        self._trace_errors: dict[str, str] = {}  # by path
        self._failed: dict[str, str] = {}  # by run: a checkpoint that cannot be uploaded
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keys: dict[str, set[str]] = {}  # keys of `_tasks`, by run
        self._uploaded: dict[str, list[str]] = {}  # uuids by allocation
        self._notices: dict[str, str] = {}  # by uuid: a line that is sent after the record
        self._measured: set[int] = set()  # experiments of which an upload was measured

    def sendable(self, run: Run, chunk: Chunk) -> Chunk | None:
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

    def _text_before_failure(self, run: Run, text: str) -> str:
        """Return the records before that of the checkpoint which cannot be uploaded; send these.

        The master may not have stored them yet, for example because its disk was full, too.
        """
        end = text.rfind("\n", 0, max(0, text.find(self._failed[run.id]))) + 1
        lines = text[:end].splitlines(keepends=True)
        return "".join(self._sendable_line(run, line) or "" for line in lines)

    def _sendable_line(self, run: Run, line: str) -> str | None:
        """Return the line as it is to be sent; None if its files have not arrived yet."""
        match record := _record_of(line):
            case CheckpointSaved(uuid=uuid) if Path(record.path).parent == self._folder:
                if uuid in self._stored:
                    path = self._stored[uuid]
                    return to_line(replace(record, path=path)) + self._notices.get(uuid, "")
                if self._credentials is None:  # the folder is the master's
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
            uuids = self._uploaded.pop(allocation_id)
            key = f"remove {allocation_id}"
            self._tasks[key] = asyncio.create_task(self._remove(key, uuids[:-1]))

    def _forget(self, run_id: str) -> None:
        keys = self._keys[run_id]
        if all(self._tasks[key].done() for key in keys):
            for known in (self._stored, self._trace_errors, self._notices, self._tasks):
                for key in keys & known.keys():
                    del known[key]
            del self._keys[run_id]
            self._failed.pop(run_id, None)

    async def _remove(self, key: str, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            await asyncio.to_thread(remove_folder, self._folder / uuid)
        del self._tasks[key]

    def _begin(self, run: Run, key: str, upload: Coroutine[Any, Any, None]) -> None:
        if key in self._tasks:
            upload.close()
        else:
            self._tasks[key] = asyncio.create_task(upload)
            self._keys.setdefault(run.id, set()).add(key)

    async def _upload(self, run: Run, record: CheckpointSaved) -> None:
        uuid, began = record.uuid, time.monotonic()

        async def send(http: httpx.AsyncClient) -> str | None:
            stored = await send_checkpoint(http, self._url(run, uuid), self._folder / uuid)
            return None if stored is None else stored.path

        try:
            path = await self._try(f"checkpoint {uuid}", send, run)
        except Exception as error:
            self._give_up(run, uuid, error)
        else:
            if path:
                self._measure(run, record, time.monotonic() - began)
            self._stored[uuid] = path or record.path
            self._uploaded.setdefault(run.id, []).append(uuid)
        self._on_done()

    async def _upload_share(self, run: Run, record: CheckpointShare) -> None:
        """Upload a share, and wait until the master has the others too."""
        uuid, folder = record.uuid, Path(record.path)

        async def send(http: httpx.AsyncClient) -> str | None:
            url = self._url(run, uuid)
            stored = await send_checkpoint(http, url, folder, record.share, record.num_shares)
            while stored is not None and not stored.path:
                if stored.silent_s > (_SHARES_S if run.is_alive else _SHARES_AFTER_END_S):
                    raise _SharesMissing("files of it on other computers were not uploaded")
                await asyncio.sleep(_SHARES_POLL_S)
                stored = await commit(http, url, folder, record.share, record.num_shares)
            return None if stored is None else stored.path

        try:
            path = await self._try(f"checkpoint {uuid}", send, run)
        except _SharesMissing as error:
            if record.share == 0:
                self._give_up(run, uuid, error)
            path = None  # another agent's share is missing: the chief reports that
        except Exception as error:
            self._give_up(run, uuid, error)
            path = None
        self._stored[uuid] = path or str(self._folder / uuid)
        await asyncio.to_thread(remove_folder, folder)
        self._on_done()

    def _url(self, run: Run, uuid: str) -> str:
        return f"{agent_path(self._agent_id)}/runs/{quote(run.id)}/checkpoints/{quote(uuid)}"

    async def _upload_trace(self, run: Run, path: str) -> None:
        url = f"{agent_path(self._agent_id)}/runs/{quote(run.id)}/files"
        try:
            stored = await self._try(path, lambda http: send_trace(http, url, Path(path)))
            self._stored[path] = stored or path
        except Exception as error:
            logger.error("%s is not uploaded: %s", path, error_text(error))
            self._trace_errors[path] = (
                f"it could not be uploaded from agent {self._agent_id}: {_reason(error)}"
            )
        self._on_done()

    async def _try(
        self,
        what: str,
        send: Callable[[httpx.AsyncClient], Coroutine[Any, Any, str | None]],
        run: Run | None = None,
    ) -> str | None:
        """Return the result of `send`; if it fails for GIVE_UP_S, raise its last error.

        While `run` is alive, it waits as long as the master's disk is full.
        """
        try:
            return await self._try_long(what, send, run)
        finally:
            if run is not None:
                run.waits_for_master = 0.0

    async def _try_long(
        self,
        what: str,
        send: Callable[[httpx.AsyncClient], Coroutine[Any, Any, str | None]],
        run: Run | None,
    ) -> str | None:
        failing_since, num_failures = 0.0, 0
        pause_s, longest_s = _PAUSES_S
        while True:
            try:
                async with open_http(self._credentials) as http:
                    return await send(http)
            except Exception as error:  # the master's answer, the network, a disk here
                is_away = isinstance(error, httpx.TransportError | MasterUnreachable)
                if is_away and not await self._is_answered():
                    logger.info("%s is uploaded again: %s", what, error_text(error))
                    await asyncio.sleep(longest_s)
                    continue
                if run is not None and run.is_alive and isinstance(error, Refused):
                    if error.no_room:
                        run.waits_for_master = run.waits_for_master or time.time()
                        await asyncio.sleep(longest_s)
                        continue
                    run.waits_for_master = 0.0
                num_failures += 1
                if num_failures == 1:
                    failing_since = time.monotonic()
                is_late = time.monotonic() - failing_since >= GIVE_UP_S
                if isinstance(error, _SharesMissing) or (
                    is_late and num_failures >= _LEAST_FAILURES
                ):
                    raise
                logger.warning("%s is uploaded again: %s", what, error_text(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _is_answered(self) -> bool:
        """Return whether the master answers a small request, with any status."""
        try:
            async with open_http(self._credentials) as http:
                await http.get(f"{agent_path(self._agent_id)}/clock")
        except (httpx.TransportError, MasterUnreachable):
            return False
        except OSError:  # of this computer: no descriptor is free, for example
            return True
        return True

    def _give_up(self, run: Run, uuid: str, error: Exception) -> None:
        logger.error("checkpoint %s is not uploaded, so its run ends: %s", uuid, error_text(error))
        self._failed[run.id] = uuid
        is_full = error.no_room if isinstance(error, Refused) else is_no_room(error)
        what = f"checkpoint {uuid} could not be uploaded from agent {self._agent_id}"
        self._break_off(run, f"{what}: {_reason(error)}", no_room=is_full)

    def _measure(self, run: Run, record: CheckpointSaved, seconds: float) -> None:
        """Report size and time of an experiment's first upload, which shows what to expect."""
        if run.plan.experiment_id in self._measured:
            return
        self._measured.add(run.plan.experiment_id)
        text = (
            f"checkpoints are uploaded from agent {self._agent_id} to the master's computer while "
            f"the training goes on; the first, {size(record.size_bytes)}, took {seconds:.1f} s"
        )
        self._notices[record.uuid] = to_line(Notice(at=time.time(), rank=0, text=text))

    async def close(self) -> None:
        """Stop the uploads; the next agent process does those that are not complete."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class _SharesMissing(Exception):
    """Agents of the gang have not uploaded their files of a checkpoint."""


def _reason(error: Exception) -> str:
    """Return the message of an error of an upload."""
    is_ours = isinstance(error, Refused | _SharesMissing)
    return str(error) if is_ours else error_text(error)


def _record_of(line: str) -> object:
    if not any(kind in line for kind in _KINDS):
        return None
    try:
        return parse_line(line)
    except ValueError:  # the master quarantines the line
        return None
