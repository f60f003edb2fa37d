"""Errors and stacks as a person reads them: cells by their names, our own frames left out."""

from __future__ import annotations

import linecache
import threading
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.errors import ConfigError
from det_jupyter.worker.rank import is_lost_peer
from det_jupyter.worker.tracebacks import CodeNames, Explanation

CELL = """
def inner(x):
    return 1 / x

def outer(x):
    try:
        return inner(x)
    except ZeroDivisionError as error:
        raise ValueError("no such x") from error

def through_us(context):
    context.train.report_progress(7)
"""


@pytest.fixture
def cell() -> dict[str, Any]:
    linecache.cache["<cell>"] = (len(CELL), None, CELL.splitlines(keepends=True), "<cell>")
    namespace: dict[str, Any] = {}
    exec(compile(CELL, "<cell>", "exec"), namespace)
    return namespace


def names() -> CodeNames:
    return CodeNames({"<cell>": "Cell In[3]"}, [Path("/home/user/notebooks")])


def explain(function: Any, *arguments: Any) -> Explanation:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever it is
        function(*arguments)
    return names().explain(caught.value)


def test_an_error_is_told_with_its_cause_and_the_cells_lines(cell: dict[str, Any]) -> None:
    explanation = explain(cell["outer"], 0)
    assert explanation.error == "ValueError: no such x"
    assert explanation.where == "Cell In[3], line 9, in outer"
    lines = explanation.traceback
    assert "  Cell In[3], line 3, in inner\n    return 1 / x\n" in lines
    assert "The above exception was the direct cause" in lines
    assert "<cell>" not in lines


def test_our_frames_are_left_out_and_the_users_is_the_place(
    cell: dict[str, Any], tmp_path: Path
) -> None:
    explanation = explain(cell["through_us"], core.init(checkpoint_storage=tmp_path))
    assert explanation.where == "Cell In[3], line 12, in through_us"
    assert "core/train.py" not in explanation.traceback
    assert explanation.error.startswith("ValueError: report_progress: got 7")


def test_an_error_without_any_code_of_the_users_keeps_ours() -> None:
    explanation = explain(core.DistributedContext, *[1])
    assert explanation.where == ""
    assert "TypeError" in explanation.traceback


def test_our_own_refusals_are_their_message() -> None:
    problem = ConfigError(["searcher.metric: got 'a'", "entrypoint: missing"])
    explanation = names().explain(problem)
    assert explanation.error == "searcher.metric: got 'a'; entrypoint: missing"
    assert explanation.traceback == "searcher.metric: got 'a'\nentrypoint: missing\n"


def test_an_error_without_words_is_its_name() -> None:
    assert names().explain(KeyboardInterrupt()).error == "KeyboardInterrupt"


def test_the_main_threads_stack_can_be_read_from_another_thread() -> None:
    entered, stacks = threading.Event(), []

    def look() -> None:
        entered.wait(10)
        stacks.append(names().main_stack())

    thread = threading.Thread(target=look)
    thread.start()
    entered.set()
    thread.join()
    assert "in test_the_main_threads_stack_can_be_read_from_another_thread" in stacks[0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:4"), True),
        (RuntimeError("Read error [127.0.0.1]: Connection reset by peer"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ConnectionResetError(104, "Connection reset by peer"), False),  # the trial's own
    ],
)
def test_the_echo_of_another_ranks_end_is_recognised(error: Exception, expected: bool) -> None:
    assert is_lost_peer(error) is expected
