"""A handle on a rank of a trial: a Jupyter kernel that runs code while the rank trains."""

from __future__ import annotations

import ast
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_jupyter.client.handles.trial_orders import Trace, Traces
from det_jupyter.contract.messages import RankView
from det_jupyter.errors import Conflict, DetError

if TYPE_CHECKING:  # imported at the first request to a rank
    from jupyter_client.blocking.client import BlockingKernelClient

ANSWER_TIMEOUT_S = 10.0
_KERNEL_UP_S = 5.0
_EXAMINED_S = 1.0  # pause between requests for the reason
_CHECK_S = 0.25  # how often it is checked whether the rank still exists
_SUBSCRIBED_S = 0.05
_CONTROL_TIMEOUT_S = 1.0
_STACK_TIMEOUT_S = 5.0


class ExecutionError(DetError):
    """Code that was executed in a rank raised an error; the training goes on."""


class Rank:
    """One rank of a running trial."""

    def __init__(
        self,
        view: RankView,
        trial_id: int,
        profile_trial: Callable[..., Traces],
        why_silent: Callable[[RankView], str],
    ) -> None:
        self.view = view
        self._trial_id = trial_id
        self._profile_trial = profile_trial
        self._why_silent = why_silent

    @property
    def connection_file(self) -> str:
        """Path of the kernel's connection file, for `jupyter console --existing`."""
        return self.view.connection_file

    def execute(self, code: str, *, timeout: float = ANSWER_TIMEOUT_S) -> Any:
        """Run `code` in the rank, beside its training, and return its last expression's value.

        What the code prints is printed here. Numbers, strings and containers of them are returned
        as values, anything else as its repr. `trial`, `context`, `model`, `batch`, `metrics`,
        `loss`, `batch_idx`, `rank` and others are defined. Never start a collective: the other
        ranks would not join it.

        Raises:
            ExecutionError: The code raised an error.
            Conflict: The rank does not answer (it has ended, or its interpreter is held up).
        """
        if not isinstance(code, str):
            raise TypeError(f"execute: got {code!r}, expected Python code as a string")
        kernel = self._connected()
        outputs: list[dict[str, Any]] = []
        try:
            self._wait_until_listening(kernel, timeout)
            number = kernel.execute(
                code,
                store_history=False,
                allow_stdin=False,
                stop_on_error=False,  # otherwise requests right after an error are dropped
            )
            content = self._wait_for_result(kernel, number, timeout, outputs)
        except queue.Empty:  # no reply to the first message
            is_busy = _answers_control(kernel, "kernel_info_request")
            busy = "it is still busy with an earlier execute"
            raise self._silent(busy if is_busy else f"no answer within {timeout:g} s") from None
        except TimeoutError:
            # Otherwise every later execute would wait for this one.
            is_interrupted = _answers_control(kernel, "interrupt_request")
            then = " and was requested to interrupt the code" if is_interrupted else ""
            raise self._silent(f"no result within {timeout:g} s{then}") from None
        finally:
            kernel.stop_channels()
        return _result(content, outputs, self.view.rank)

    def profile(self, steps: int = 10, **how: Any) -> Trace:
        """Record the next batches with torch.profiler; for the arguments see `Trial.profile`."""
        return self._profile_trial(steps, [self.view.rank], **how)[0]

    def stack(self) -> str:
        """Return the stack of the rank's training thread, cells named as in the notebook."""
        return str(self.execute("det_stack()", timeout=_STACK_TIMEOUT_S))

    def _connected(self) -> BlockingKernelClient:
        from jupyter_client.blocking.client import BlockingKernelClient

        if not self.view.connection_file:
            raise self._silent("it was started by hand, and has no kernel here")
        kernel = BlockingKernelClient()
        began = examined = time.monotonic()
        while not Path(self.view.connection_file).exists():  # written soon after the first step
            if (now := time.monotonic()) > examined + _EXAMINED_S:
                why = self._why_silent(self.view)
                if not why and now > began + _KERNEL_UP_S:
                    why = "its kernel is not up yet"
                if why:
                    raise self._silent(why)
                examined = now
            time.sleep(0.02)
        kernel.load_connection_file(self.view.connection_file)
        kernel.start_channels(stdin=False, hb=False)
        return kernel

    def _wait_until_listening(self, kernel: BlockingKernelClient, timeout: float) -> None:
        """Wait until the kernel replies and its outputs arrive; queue.Empty after `timeout` s.

        jupyter_client's own `wait_for_ready` takes 0.2 s longer: it waits until no output comes.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            kernel.kernel_info()
            self._next_message(kernel.get_shell_msg, deadline)
            with suppress(queue.Empty):  # the subscription took effect only after the reply
                kernel.get_iopub_msg(timeout=_SUBSCRIBED_S)
                return
        raise queue.Empty

    def _wait_for_result(
        self,
        kernel: BlockingKernelClient,
        number: str,
        timeout: float,
        outputs: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the content of the reply to a request, and add what the request has output.

        jupyter_client's `execute_interactive` would wait for a rank that has ended.

        Raises:
            TimeoutError: It is not there after `timeout` s.
            Conflict: The rank has ended, or cannot be reached any more.
        """
        deadline = time.monotonic() + timeout
        is_idle = False
        content: dict[str, Any] | None = None
        try:
            while not is_idle:
                message = self._next_message(kernel.get_iopub_msg, deadline)
                if message["parent_header"].get("msg_id") == number:
                    outputs.append(message)
                    is_idle = message["content"].get("execution_state") == "idle"
            while content is None:
                message = self._next_message(kernel.get_shell_msg, deadline)
                if message["parent_header"].get("msg_id") == number:
                    content = message["content"]
        except queue.Empty:
            raise TimeoutError from None
        return content

    def _next_message(self, get: Callable[..., Any], deadline: float) -> dict[str, Any]:
        """Return the next message of a channel; queue.Empty at the deadline.

        Raises:
            Conflict: The rank has ended, or cannot be reached any more.
        """
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                message: dict[str, Any] = get(timeout=min(_CHECK_S, left_s))
                return message
            except queue.Empty:
                if why := self._why_lost():
                    raise self._silent(why) from None
                if left_s <= _CHECK_S:
                    raise

    def _why_lost(self) -> str:
        """Return why a rank that was reached cannot be reached any more; "" if it can."""
        if self.view.is_remote:
            if Path(self.view.connection_file).exists():
                return ""
            return self._why_silent(self.view) or "the connection to it was lost"
        # Its process may run though it is not seen from here, for example from a container.
        return "" if self.view.process.is_alive else self._why_silent(self.view)

    def _silent(self, why: str) -> Conflict:
        return Conflict(f"rank {self.view.rank} of trial {self._trial_id} does not answer: {why}")

    def __repr__(self) -> str:
        place = self.view.device or self.view.slot.name
        on = f" on {self.view.host}" if self.view.is_remote else ""
        return (
            f"Rank {self.view.rank} of trial {self._trial_id} (pid {self.view.pid}{on}, {place})"
        )


def _answers_control(kernel: BlockingKernelClient, request: str) -> bool:
    """Return whether the kernel replies on its control channel, which works while it executes."""
    kernel.control_channel.send(kernel.session.msg(request, {}))
    try:
        kernel.get_control_msg(timeout=_CONTROL_TIMEOUT_S)
    except queue.Empty:
        return False
    return True


def _result(content: dict[str, Any], outputs: list[dict[str, Any]], rank: int) -> Any:
    result: Any = None
    for message in outputs:
        data = message["content"]
        if message["msg_type"] == "stream":
            print(data["text"], end="")
        elif message["msg_type"] == "execute_result":
            result = data["data"].get("text/plain", "")
            with suppress(ValueError, SyntaxError):
                result = ast.literal_eval(result)
    if content["status"] != "ok":
        raise ExecutionError(f"rank {rank}: {content.get('ename')}: {content.get('evalue')}")
    return result
