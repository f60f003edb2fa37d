"""Errors and stacks as a person reads them: cells by their names, our own frames left out."""

from __future__ import annotations

import linecache
import os
import re
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._utils import ExceptionWrapper

from det_jupyter import core
from det_jupyter.core.peer_errors import is_lost_peer, is_lost_worker
from det_jupyter.core.tracebacks import CodeNames, Explanation
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import DataLoader
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.parallel.sharding import explain_sharding_error

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


@pytest.mark.parametrize(
    ("lines", "error", "function"),
    [
        (["1 / x  # here"], "ZeroDivisionError: division by zero", "train_batch"),
        (
            ["import nowhere  # here"],
            "ModuleNotFoundError: No module named 'nowhere'",
            "train_batch",
        ),
        (["sys.exit(1)  # here"], "SystemExit: 1", "train_batch"),
        (["sys.exit('no data')  # here"], "SystemExit: no data", "train_batch"),
        (["raise KeyboardInterrupt  # here"], "KeyboardInterrupt", "train_batch"),
        (["bytearray(1 << 60)  # here"], "MemoryError", "train_batch"),
        (["torch.empty(1 << 60)  # here"], "RuntimeError: .*allocate memory", "train_batch"),
        (
            ["torch.nn.Linear(2, 1)(torch.ones(3))  # here"],
            "RuntimeError: .*shapes cannot be multiplied",
            "train_batch",
        ),
        (
            ["def deeper(): deeper()  # here", "deeper()"],
            "RecursionError: maximum recursion depth exceeded",
            "deeper",
        ),
        (
            ["raise ExceptionGroup('both', [KeyError('one'), ValueError('two')])  # here"],
            "ExceptionGroup: both",
            "train_batch",
        ),
        (
            [
                "before = signal.signal(signal.SIGUSR1, lambda *_: 1 / x)  # here",
                "try: signal.raise_signal(signal.SIGUSR1)",
                "finally: signal.signal(signal.SIGUSR1, before)",
            ],
            "ZeroDivisionError: division by zero",
            "<lambda>",
        ),
    ],
)
def test_what_python_code_raises_is_told_with_its_line(
    lines: list[str], error: str, function: str
) -> None:
    code = ["import signal, sys, torch", "def train_batch(x):", *(f"    {line}" for line in lines)]
    linecache.cache["<cell>"] = (1, None, [f"{line}\n" for line in code], "<cell>")
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(code), "<cell>", "exec"), namespace)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # whatever it is
        namespace["train_batch"](0)
    explanation = names().explain(caught.value)
    assert re.match(f"^{error}", explanation.error)
    (number,) = [n for n, line in enumerate(code, 1) if line.endswith("# here")]
    assert explanation.where == f"Cell In[3], line {number}, in {function}"


def test_our_frames_are_left_out_and_the_users_is_the_place(
    cell: dict[str, Any], tmp_path: Path
) -> None:
    explanation = explain(cell["through_us"], core.init(checkpoint_storage=tmp_path))
    assert explanation.where == "Cell In[3], line 12, in through_us"
    assert "core/train.py" not in explanation.traceback
    assert explanation.error.startswith("ValueError: report_progress: got 7")


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("models/ops.py", "ops.py, line 1, in resize"),
        (".venv/lib/python3.11/site-packages/ops.py", "Cell In[3], line 1, in load"),
    ],
)
def test_a_library_below_the_users_folder_is_not_the_users_code(
    cell: dict[str, Any], file: str, where: str
) -> None:
    exec(compile("def resize(x): return 1 / x", f"/home/user/notebooks/{file}", "exec"), cell)
    exec(compile("def load(x): return resize(x)", "<cell>", "exec"), cell)
    assert explain(cell["load"], 0).where == where


def test_an_error_without_any_code_of_the_users_keeps_ours() -> None:
    explanation = explain(core.DistributedContext, *[1])
    assert explanation.where == ""
    assert "TypeError" in explanation.traceback


def test_our_own_refusals_are_their_message() -> None:
    problem = ConfigError(["searcher.metric: got 'a'", "entrypoint: missing"])
    explanation = names().explain(problem)
    assert explanation.error == "searcher.metric: got 'a'; entrypoint: missing"
    assert explanation.traceback == "", "it would repeat the error"


def test_a_configuration_error_in_a_users_frame_is_its_message_too(cell: dict[str, Any]) -> None:
    cell["inner"] = lambda x: _raise(ConfigError(["context: got 1"]))
    explanation = explain(cell["outer"], 0)
    assert (explanation.error, explanation.traceback) == ("context: got 1", "")
    assert explanation.printed == "context: got 1\n"
    assert explanation.where == "Cell In[3], line 7, in outer"


def test_a_method_is_named_whose_frame_is_gone(cell: dict[str, Any]) -> None:
    error = TrialMistake("inner", "inner returned None")
    code = error.code_in(type("Trial", (), cell)())
    explanation = names().explain(error, code)
    assert explanation.where == "Cell In[3], line 2, in inner"
    assert (explanation.error, explanation.traceback) == ("inner returned None", "")
    assert TrialMistake("absent", "").code_in(object()) is None


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


def _raise(error: BaseException) -> None:
    raise error


def test_an_error_that_cannot_be_printed_is_told_by_its_name() -> None:
    explanation = explain(_raise, Unspeakable())
    assert explanation.error == "Unspeakable: <its __str__ raised KeyError>"
    assert "in _raise" in explanation.traceback


def test_a_message_that_begins_with_a_ruler_is_told_by_its_first_words() -> None:
    explanation = explain(_raise, ValueError("=====\n\ntrain.py FAILED\n-----"))
    assert explanation.error == "ValueError: train.py FAILED"
    assert explain(_raise, ValueError("?!")).error == "ValueError: ?!"


def test_endless_messages_are_cut() -> None:
    explanation = explain(_raise, ValueError("x" * 200_000 + "end"))
    assert len(explanation.error) == 500
    assert explanation.error.startswith("ValueError: xxx")
    assert 49_000 < len(explanation.traceback) < 51_000
    assert explanation.traceback.endswith("xend\n")


class Killed(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_a_killed_loader_worker_is_no_mistake_of_the_trials() -> None:
    with pytest.raises(RuntimeError) as caught:
        next(iter(torch.utils.data.DataLoader(Killed(), num_workers=1)))
    assert is_lost_worker(caught.value)
    assert not is_lost_worker(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def hand_over(target: Connection) -> None:
    target.send(torch.ones(3))
    signal.pause()


def test_a_worker_killed_while_it_hands_a_tensor_over_is_no_mistake_either() -> None:
    """The worker ends between its message and the connection for the tensor's descriptor."""
    context = torch.multiprocessing.get_context("fork")
    source, target = context.Pipe(duplex=False)
    worker = context.Process(target=hand_over, args=(target,))
    worker.start()
    assert source.poll(60)
    worker.kill()
    worker.join()
    with pytest.raises((ConnectionError, EOFError, FileNotFoundError)) as caught:
        source.recv()
    assert is_lost_worker(caught.value)
    info = (caught.type, caught.value, caught.tb)
    wrapper = ExceptionWrapper(info, where="in pin memory thread for device 0")
    with pytest.raises(caught.type) as again:
        wrapper.reraise()
    assert is_lost_worker(again.value)
    assert not is_lost_worker(caught.type("a download in the dataset"))


def test_unspeakable_errors_can_be_compared_with_what_sharding_raises() -> None:
    error = Unspeakable()
    explain_sharding_error(error)
    assert not hasattr(error, "__notes__")


class Broken(torch.utils.data.Dataset[int]):
    def __init__(self, function: Any) -> None:
        self.function = function

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return int(self.function(0))


def test_an_error_in_a_loaders_worker_is_told_as_if_it_were_raised_here(
    cell: dict[str, Any],
) -> None:
    loader = DataLoader(Broken(cell["outer"]), num_workers=1)
    explanation = explain(list, loader)
    assert explanation.error == "ValueError: no such x"
    assert explanation.where == "Cell In[3], line 9, in outer"
    assert "  Cell In[3], line 3, in inner\n    return 1 / x\n" in explanation.traceback
    assert "det_jupyter/pytorch/data/" not in explanation.traceback


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        (
            '  File "a.py", line 2, in load\n    return 1 / 0\nValueError: no\nmore',
            "ValueError: no",
        ),
        ("ValueError: no", "Caught ValueError in DataLoader worker process 0."),
        ('  File "a.py", line 2, in load\n', "Caught ValueError in DataLoader worker process 0."),
    ],
)
def test_a_workers_traceback_is_told_by_what_follows_its_frames(frames: str, error: str) -> None:
    head = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent):\n"
    assert names().explain(ValueError(head + frames)).error == error


def test_an_error_without_words_is_its_name() -> None:
    assert names().explain(KeyboardInterrupt()).error == "KeyboardInterrupt"


def test_the_main_threads_stack_can_be_read_from_another_thread() -> None:
    entered, stacks = threading.Event(), []

    def look() -> None:
        entered.wait()
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
    torch_file = f"{Path(torch.__file__).parent}/distributed/distributed_c10d.py"
    raises: dict[str, Any] = {"error": error}
    exec(compile("def all_reduce(): raise error", torch_file, "exec"), raises)
    with pytest.raises(type(error)) as caught:
        raises["all_reduce"]()
    assert is_lost_peer(caught.value) is expected


def test_what_the_trial_itself_raises_is_no_echo() -> None:
    with pytest.raises(RuntimeError) as caught:
        _raise(RuntimeError("broken pipe"))
    assert not is_lost_peer(caught.value)
