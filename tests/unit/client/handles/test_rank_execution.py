"""Code that is executed in a rank: messages of its kernel, and kernels that do not answer."""

from __future__ import annotations

import json
import queue
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.blocking import client as jupyter_module

from det_jupyter.client.handles import rank as module
from det_jupyter.client.handles.rank import Rank
from det_jupyter.client.handles.trial_orders import Trace, Traces
from det_jupyter.contract.messages import RankView, TraceView
from det_jupyter.errors import Conflict
from tests.unit.view.view_samples import rank as rank_view


def message(number: str, kind: str = "status", **content: Any) -> dict[str, Any]:
    return {"parent_header": {"msg_id": number}, "msg_type": kind, "content": content}


OTHERS = message("other", "execute_result", data={"text/plain": "99"})
IDLE = message("mine", execution_state="idle")
DONE = message("mine", "execute_reply", status="ok")
RESULT = message("mine", "execute_result", data={"text/plain": "[1, 2]"})


class Kernel:
    """A kernel client that has these messages, and none at all once they are read."""

    def __init__(
        self,
        iopub: list[dict[str, Any]],
        shell: list[dict[str, Any]],
        *,
        is_up: bool = True,
        answers_control: bool = True,
    ) -> None:
        first = [message("info")] if is_up else []
        self._iopub, self._shell = [*first, *iopub], [*first, *shell]
        self._answers_control = answers_control
        self.connected_to = ""
        self.executed: list[str] = []
        self.controls: list[str] = []
        self.is_open = False
        self.session = SimpleNamespace(msg=lambda kind, content: kind)
        self.control_channel = SimpleNamespace(send=self.controls.append)

    def load_connection_file(self, file: str) -> None:
        self.connected_to = file

    def start_channels(self, **which: bool) -> None:
        assert which == {"stdin": False, "hb": False}
        self.is_open = True

    def stop_channels(self) -> None:
        self.is_open = False

    def kernel_info(self) -> None:
        assert self.is_open

    def execute(self, code: str, **how: bool) -> str:
        assert how == {"store_history": False, "allow_stdin": False, "stop_on_error": False}
        self.executed.append(code)
        return "mine"

    def get_iopub_msg(self, timeout: float) -> dict[str, Any]:
        return self._next(self._iopub)

    def get_shell_msg(self, timeout: float) -> dict[str, Any]:
        return self._next(self._shell)

    def get_control_msg(self, timeout: float) -> dict[str, Any]:
        if self._answers_control:
            return {}
        raise queue.Empty

    def _next(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        if not messages:
            raise queue.Empty
        return messages.pop(0)


@pytest.fixture
def view(tmp_path: Path) -> RankView:
    file = tmp_path / "kernel.json"
    file.write_text("{}")
    return rank_view(1).model_copy(update={"connection_file": str(file), "is_remote": True})


def rank_of(view: RankView, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Rank:
    monkeypatch.setattr(jupyter_module, "BlockingKernelClient", lambda: kernel)
    profiles: list[Any] = []

    def profile(steps: int, ranks: list[int], **how: Any) -> Traces:
        profiles.append((steps, ranks, how))
        return Traces([Trace(TraceView(rank=rank, note=json.dumps(how))) for rank in ranks])

    return Rank(view, 3, profile, lambda rank: "")


@pytest.mark.parametrize(
    ("iopub", "result"),
    [([RESULT, IDLE], [1, 2]), ([OTHERS, IDLE], None), ([OTHERS, RESULT, IDLE, OTHERS], [1, 2])],
)
def test_the_value_of_the_last_expression_is_returned_and_of_no_other_request(
    view: RankView, iopub: list[dict[str, Any]], result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(iopub, [message("other"), DONE])
    rank = rank_of(view, kernel, monkeypatch)
    assert rank.execute("[1, 2]") == result
    assert kernel.executed == ["[1, 2]"]
    assert kernel.connected_to == rank.connection_file == view.connection_file
    assert not kernel.is_open


@pytest.mark.parametrize(
    ("answers_control", "why"),
    [
        (True, "it is still busy with an earlier execute"),
        (False, "no answer within 0 s"),
    ],
)
def test_a_kernel_that_does_not_reply_is_busy_or_held_up(
    view: RankView, answers_control: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel([], [], is_up=False, answers_control=answers_control)
    with pytest.raises(Conflict, match=f"^rank 1 of trial 3 does not answer: {why}$"):
        rank_of(view, kernel, monkeypatch).execute("1", timeout=0.0)
    assert (kernel.executed, kernel.controls, kernel.is_open) == (
        [], ["kernel_info_request"], False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers_control", "then"), [(True, " and was requested to interrupt the code"), (False, "")]
)
@pytest.mark.parametrize("iopub", [[], [RESULT], [RESULT, IDLE]])
def test_code_that_takes_too_long_is_interrupted(
    view: RankView,
    answers_control: bool,
    then: str,
    iopub: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel(iopub, [], answers_control=answers_control)
    with pytest.raises(Conflict, match=rf"does not answer: no result within 0\.1 s{then}$"):
        rank_of(view, kernel, monkeypatch).execute("1", timeout=0.1)
    assert (kernel.controls, kernel.is_open) == (["interrupt_request"], False)


def test_a_rank_that_is_gone_is_not_waited_for(
    view: RankView, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel([], [])
    rank = rank_of(view, kernel, monkeypatch)
    monkeypatch.setattr(kernel, "execute", lambda code, **how: Path(view.connection_file).unlink())
    with pytest.raises(Conflict, match=r"does not answer: the connection to it was lost$"):
        rank.execute("1", timeout=60.0)


def test_a_kernel_whose_outputs_arrive_late_is_asked_again(
    view: RankView, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel([RESULT, IDLE], [message("info"), DONE])
    late = [True]
    get = kernel.get_iopub_msg

    def nothing_at_first(timeout: float) -> dict[str, Any]:
        if late:
            late.pop()
            raise queue.Empty
        return get(timeout)

    monkeypatch.setattr(kernel, "get_iopub_msg", nothing_at_first)
    assert rank_of(view, kernel, monkeypatch).execute("1") == [1, 2]


def test_a_kernel_that_is_not_up_yet_is_waited_for(
    view: RankView, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(view.connection_file)
    file.unlink()

    def sleep(_: float) -> None:
        file.touch()

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(module, "time", clock)
    assert rank_of(view, Kernel([RESULT, IDLE], [DONE]), monkeypatch).execute("1") == [1, 2]


def test_a_stack_is_the_text_that_the_rank_returns(
    view: RankView, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = message("mine", "execute_result", data={"text/plain": "'in forward'"})
    kernel = Kernel([text, IDLE], [DONE])
    assert rank_of(view, kernel, monkeypatch).stack() == "in forward"
    assert kernel.executed == ["det_stack()"]


def test_a_profile_of_a_rank_is_of_this_rank_alone(
    view: RankView, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = rank_of(view, Kernel([], []), monkeypatch).profile(5, with_stack=True)
    assert (trace.rank, trace.view.note) == (1, '{"with_stack": true}')
    assert trace.size_bytes == 0
