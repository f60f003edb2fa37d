"""Handles on a trial and on its ranks; a rank is a Jupyter kernel that answers while it trains."""

from __future__ import annotations

import ast
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from det_jupyter.client.asking import ask_for
from det_jupyter.client.client import Client
from det_jupyter.client.logs import (
    TAIL,
    LogLines,
    Which,
    follow_lines,
    query_of,
    read,
)
from det_jupyter.client.moments import When
from det_jupyter.client.reasons import ShownReason
from det_jupyter.client.shown import trial_line
from det_jupyter.client.timings import to_columns
from det_jupyter.errors import Conflict, DetError
from det_jupyter.wire import (
    AllocationView,
    ContinueTrial,
    LogLine,
    RankView,
    State,
    TimingsView,
    TrialView,
)

if TYPE_CHECKING:  # loaded when a rank is asked
    from jupyter_client.blocking.client import BlockingKernelClient

ANSWER_TIMEOUT_S = 10.0
_KERNEL_UP_S = 5.0
_SUBSCRIBED_S = 0.05
_CONTROL_TIMEOUT_S = 1.0


class ExecutionError(DetError):
    """Code that was executed in a rank raised an error; the training goes on."""


class Rank:
    """One rank of a running trial."""

    def __init__(self, view: RankView, trial_id: int) -> None:
        self.view = view
        self._trial_id = trial_id

    @property
    def connection_file(self) -> str:
        """For `jupyter console --existing`."""
        return self.view.connection_file

    def execute(self, code: str, *, timeout: float = ANSWER_TIMEOUT_S) -> Any:
        """Run `code` in the rank, beside its training, and return its last expression's value.

        What the code prints is printed here. Numbers, strings and containers of them come back as
        values, anything else as its repr. `trial`, `context`, `model`, `batch`, `metrics`, `loss`,
        `batch_idx`, `rank` and others are there. Never start a collective: the other ranks would
        not join it.

        Raises:
            ExecutionError: The code raised an error.
            Conflict: The rank does not answer (it has ended, or its interpreter is held up).
        """
        if not isinstance(code, str):
            raise TypeError(f"execute: got {code!r}, expected Python code as a string")
        kernel = self._connected()
        outputs: list[dict[str, Any]] = []
        try:
            _wait_until_listening(kernel, timeout)
            reply = kernel.execute_interactive(
                code,
                store_history=False,
                allow_stdin=False,
                stop_on_error=False,  # else what is asked in the moment after an error is dropped
                timeout=timeout,
                output_hook=outputs.append,
            )
        except queue.Empty:  # no answer to the first message
            is_busy = _answers_control(kernel, "kernel_info_request")
            busy = "it is still busy with an earlier execute"
            raise self._silent(busy if is_busy else f"no answer within {timeout:g} s") from None
        except TimeoutError:
            # Else every later execute would wait for this one.
            is_told = _answers_control(kernel, "interrupt_request")
            told = " and was told to interrupt the code" if is_told else ""
            raise self._silent(f"no result within {timeout:g} s{told}") from None
        finally:
            kernel.stop_channels()
        return _value(reply["content"], outputs, self.view.rank)

    def stack(self) -> str:
        """Return where the rank's training thread is, cells named as in the notebook."""
        return str(self.execute("det_stack()", timeout=5.0))

    def _connected(self) -> BlockingKernelClient:
        from jupyter_client.blocking.client import BlockingKernelClient

        kernel = BlockingKernelClient()
        deadline = time.monotonic() + _KERNEL_UP_S
        while not Path(self.view.connection_file).exists():  # it starts soon after the first step
            if time.monotonic() > deadline:
                raise self._silent("its kernel is not up yet")
            time.sleep(0.02)
        kernel.load_connection_file(self.view.connection_file)
        kernel.start_channels(stdin=False, hb=False)
        return kernel

    def _silent(self, why: str) -> Conflict:
        return Conflict(f"rank {self.view.rank} of trial {self._trial_id} does not answer: {why}")

    def __repr__(self) -> str:
        place = self.view.device or self.view.slot.name
        return f"Rank {self.view.rank} of trial {self._trial_id} (pid {self.view.pid}, {place})"


def _wait_until_listening(kernel: BlockingKernelClient, timeout: float) -> None:
    """Wait until the kernel answers and its outputs reach us.

    jupyter_client's own `wait_for_ready` takes 0.2 s more: it waits for silence.
    """
    deadline = time.monotonic() + timeout
    while (left_s := deadline - time.monotonic()) > 0:
        kernel.kernel_info()
        kernel.get_shell_msg(timeout=left_s)
        with suppress(queue.Empty):  # the kernel knew of our subscription only after it answered
            kernel.get_iopub_msg(timeout=_SUBSCRIBED_S)
            return
    raise queue.Empty


def _answers_control(kernel: BlockingKernelClient, request: str) -> bool:
    """Return whether the kernel answers beside what it executes."""
    kernel.control_channel.send(kernel.session.msg(request, {}))
    try:
        kernel.get_control_msg(timeout=_CONTROL_TIMEOUT_S)
    except queue.Empty:
        return False
    return True


def _value(content: dict[str, Any], outputs: list[dict[str, Any]], rank: int) -> Any:
    result: Any = None
    for message in outputs:
        data = message["content"]
        if message["msg_type"] == "stream":
            print(data["text"], end="")
        elif message["msg_type"] == "execute_result":
            result = _parsed(data["data"].get("text/plain", ""))
    if content["status"] != "ok":
        raise ExecutionError(f"rank {rank}: {content.get('ename')}: {content.get('evalue')}")
    return result


def _parsed(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class Trial:
    """One trial of an experiment."""

    def __init__(
        self, client: Client, trial_id: int, experiment_of: Callable[[int], Any] | None = None
    ) -> None:
        self._client = client
        self._experiment_of = experiment_of
        self.id = trial_id

    @property
    def view(self) -> TrialView:
        """Everything the master knows of it, fetched now."""
        return self._client.trial(self.id)

    @property
    def state(self) -> str:
        """Its state, fetched now."""
        return self.view.state

    @property
    def hparams(self) -> dict[str, Any]:
        """Its hyperparameters."""
        return self.view.hparams

    @property
    def ranks(self) -> list[Rank]:
        """Its ranks.

        Raises:
            Conflict: It does not run now.
        """
        allocation = self._running_allocation()
        return [Rank(view, self.id) for view in allocation.ranks]

    def stacks(self) -> dict[int, str]:
        """Return where each rank is: rank to stack, or to why it does not answer."""
        ranks = self.ranks
        with ThreadPoolExecutor(len(ranks)) as pool:
            stacks = list(pool.map(_stack_or_reason, ranks))
        return Stacks({rank.view.rank: text for rank, text in zip(ranks, stacks, strict=True)})

    @overload
    def logs(self, *, follow: Literal[False] = False, **which: Unpack[Which]) -> LogLines: ...

    @overload
    def logs(self, *, follow: Literal[True], **which: Unpack[Which]) -> Iterator[LogLine]: ...

    def logs(
        self,
        *,
        rank: int | None = None,
        since: When = None,
        level: str | None = None,
        search: str | None = None,
        tail: int | None = TAIL,
        follow: bool = False,
    ) -> LogLines | Iterator[LogLine]:
        """Return the last `tail` lines that its ranks printed; with None, all of them.

        Args:
            rank: Only of this rank.
            since: Only since then: an age such as "10m", a date, or a time.
            level: Only of this level or a higher one: debug, info, warning, error, critical. It
                is recognised in the line; a traceback is an error.
            search: Only with this text, upper or lower case; as "/.../" a regular expression.
            tail: How many lines; the result's `total` says how many fit.
            follow: Return an iterator that waits for more lines until the trial has ended.
        """
        query = query_of(rank=rank, since=since, level=level, search=search)
        fetch = partial(self._client.logs, self.id)
        return (follow_lines if follow else read)(fetch, query, tail)

    def timings(self) -> dict[str, list[float | None]]:
        """Return how long the parts of its batches took, if `profiling.enabled` recorded that.

        Lists of one length, which a DataFrame takes as they are: `batch_idx`, `samples_per_second`
        (of all ranks together), and seconds on the chief: `batch`, `dataloader_next`, `to_device`,
        `train_batch`, `train_batch.backward`, ... None: that batch has no such part.
        """
        records: list[TimingsView] = []
        while page := self._client.timings(self.id, after=records[-1].id if records else 0):
            records += page
        return to_columns(records)

    def why(self) -> ShownReason:
        """Return why it does not run: one sentence, and what would start it."""
        return ShownReason(**dict(self._client.reason(self.id)))

    def kill(self) -> None:
        """End it now; what was not saved is lost. Its experiment goes on."""
        self._client.kill_trial(self.id)

    def train_to(self, length: dict[str, int] | int) -> Any:
        """Train it on as an experiment of its own, and return the handle on that.

        It goes on from its latest checkpoint, with its hyperparameters and its seed.

        Args:
            length: Counted from its beginning, such as {"epochs": 12}.

        Raises:
            ConfigError: It has no checkpoint.
            Conflict: It trains now.
        """
        view = self._client.train_on(self.id, ask_for(ContinueTrial, length=length))
        if self._experiment_of is not None:
            return self._experiment_of(view.id)
        from det_jupyter.client.experiment import Experiment

        return Experiment(self._client, view.id)

    def _running_allocation(self) -> AllocationView:
        view = self.view
        if view.allocation is None or not view.allocation.ranks:
            starting = "its ranks are starting; try again in a moment"
            now = starting if view.state is State.ACTIVE else f"it is {view.state}"
            why = view.waiting_for or now
            raise Conflict(f"trial {self.id} has no ranks now: {why}")
        return view.allocation

    def __repr__(self) -> str:
        try:
            return trial_line(self.view)
        except DetError as error:
            return f"Trial {self.id} ({error})"


class Stacks(dict[int, str]):
    """Rank to stack; prints as one readable text."""

    def __repr__(self) -> str:
        return "\n".join(
            f"── rank {rank} " + "─" * 60 + f"\n{text}" for rank, text in self.items()
        )


def _stack_or_reason(rank: Rank) -> str:
    from jupyter_core.utils import ensure_event_loop

    try:
        return rank.stack()
    except DetError as error:
        return f"({error})"
    finally:
        ensure_event_loop().close()  # jupyter_client's, of this thread, which ends now
