"""Sends the TensorBoard files of trials to the master's computer while they are written.

    event files     only grow: their new bytes are sent
    other files     are sent whole, again after each change
    names           that are not UTF-8 cannot be sent; these files are left out

The master writes them into its own data folder, at the same path, so TensorBoard shows the curves
while the trial trains. The end of a run is reported after its files were sent, or
after a limited time in which that failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx

from det_jupyter.agent.link.master_link import agent_path, open_http
from det_jupyter.agent.link.sending import RequestRefused, send_file
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials
from det_jupyter.contract.values.text import error_text
from det_jupyter.storage.listing import is_utf8

logger = logging.getLogger(__name__)

PERIOD_S = 2.0
_CHECK_S = 0.1  # how often runs are checked for their ends
_LONGEST_S = 30.0  # how long a run that has ended waits for its files
_EVENTS = "tfevents"


class _State(NamedTuple):
    """A version of a file."""

    size: int
    mtime_ns: int


class TrialFiles:
    """The TensorBoard files of an agent's runs.

    Args:
        credentials: Credentials of the agent.
        runs: Its runs by id (a live mapping).
    """

    def __init__(self, credentials: AgentCredentials, runs: Mapping[str, AgentRun]) -> None:
        self._credentials = credentials
        self._base = agent_path(credentials.agent)
        self._runs = runs
        self._sent: dict[str, dict[str, _State]] = {}  # by run and name
        self._complete: set[str] = set()
        self._ended_at: dict[str, float] = {}  # monotonic time when a run was seen to have ended
        self._due = 0.0
        self._problem = ""

    def are_sent(self, run: AgentRun) -> bool:
        """Return whether the files of a run that has ended were sent, or are given up."""
        return run.id in self._complete or not _folder_of(run).is_dir()

    async def keep_sent(self) -> None:
        """Send what is new, until cancelled."""
        while True:
            is_due = time.monotonic() >= self._due
            for run in list(self._runs.values()):
                if run.id not in self._complete and (is_due or not run.is_alive):
                    await self._send_new(run)
            if is_due:
                self._due = time.monotonic() + PERIOD_S
                for state in (self._sent, self._ended_at):
                    for run_id in state.keys() - self._runs.keys():
                        del state[run_id]
                self._complete &= self._runs.keys()
            await asyncio.sleep(_CHECK_S)

    async def _send_new(self, run: AgentRun) -> None:
        has_ended = not run.is_alive  # before the files are listed
        try:
            changed = await asyncio.to_thread(lambda: list(self._changed(run)))
            if changed:
                async with open_http(self._credentials) as http:
                    for name, state in changed:
                        await self._send(http, run, name, state)
        except Exception as error:  # the network, a full disk there: it is tried again
            is_given_up = isinstance(error, RequestRefused) and error.is_given_up
            ended_at = self._ended_at.setdefault(run.id, time.monotonic()) if has_ended else None
            if is_given_up or (ended_at is not None and time.monotonic() - ended_at > _LONGEST_S):
                self._complete.add(run.id)
            problem = error_text(error)
            if problem != self._problem:
                self._problem = problem
                logger.warning("files of run %s are not sent: %s", run.id, problem)
        else:
            if has_ended:
                self._complete.add(run.id)

    def _changed(self, run: AgentRun) -> Iterator[tuple[str, _State]]:
        folder, sent = _folder_of(run), self._sent.setdefault(run.id, {})
        for path in sorted(folder.rglob("*")):
            with suppress(FileNotFoundError):  # removed meanwhile
                status = path.stat()
                name, state = (
                    str(path.relative_to(folder)),
                    _State(status.st_size, status.st_mtime_ns),
                )
                if path.is_file() and is_utf8(name) and sent.get(name) != state:
                    yield name, state

    async def _send(
        self, http: httpx.AsyncClient, run: AgentRun, name: str, state: _State
    ) -> None:
        sent = self._sent[run.id].get(name, _State(0, 0))
        grows = _EVENTS in name and state.size >= sent.size
        place: dict[str, str | int] = {"of": "tensorboard", "name": name, "size": state.size}
        url = f"{self._base}/runs/{quote(run.id)}/files"
        try:
            offset = sent.size if grows else 0
            await send_file(http, url, _folder_of(run) / name, place, offset, state.size)
        except FileNotFoundError:  # removed meanwhile
            return
        except RequestRefused:
            self._sent[run.id].pop(name, None)  # the master may have less of it
            raise
        self._sent[run.id][name] = state


def _folder_of(run: AgentRun) -> Path:
    """Return the folder of a trial's TensorBoard files (`tensorboard_folder` in core/train.py)."""
    return paths.data_dir() / "tensorboard" / str(run.plan.experiment_id) / str(run.plan.trial_id)
