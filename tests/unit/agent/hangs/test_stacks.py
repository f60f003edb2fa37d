"""What stacks and flight recorders say about a rank."""

from __future__ import annotations

import faulthandler
import json
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from det_jupyter.agent.hangs import stacks
from det_jupyter.agent.hangs.recorder import pending, read_recorder
from det_jupyter.agent.hangs.stacks import Frame

CELL = "/tmp/ipykernel_7/12.py"
LABELS = {CELL: "Cell In[12]"}
CORE = str(Path(stacks.__file__).parents[2] / "core")
TORCH = "/env/site-packages/torch"


def source(file: str, line: int) -> str:
    return "    time.sleep(1000)" if file == CELL else "x = queue.get()"


def test_the_last_thread_is_the_main_one() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        frames = stacks.main_thread(file.read())
    done.set()
    thread.join()
    here = sys._getframe().f_code
    assert (frames[0].file, frames[0].name) == (here.co_filename, here.co_name)
    assert stacks.main_thread("no stack") == []


def test_a_place_is_that_of_the_users_code() -> None:
    frames = [
        Frame("/usr/lib/python3.11/queue.py", 171, "get"),
        Frame(CELL, 8, "train_batch"),
        Frame(f"{CORE}/context.py", 5, "run"),
    ]
    assert stacks.find_place(frames, LABELS, [], source) == ("time.sleep", "cell 12, line 8")
    assert stacks.find_place(frames[:1], LABELS, [], source) == ("queue.get", "queue.py, line 171")
    assert stacks.find_place([], LABELS, [], source) == ("", "")
    text = stacks.stack_text(frames, LABELS, source)
    assert text.splitlines() == [
        "Cell In[12], line 8, in train_batch",
        "    time.sleep(1000)",
        'File "/usr/lib/python3.11/queue.py", line 171, in get',
        "    x = queue.get()",
    ]


@pytest.mark.parametrize(
    ("file", "is_user_frame"),
    [
        (CELL, True),
        ("/home/ann/train.py", True),
        ("/home/ann/miniconda3/lib/python3.11/threading.py", False),
        ("/home/ann/.venv/lib/python3.13t/site-packages/torch/nn/module.py", False),
        ("/home/ann/lib/python_tools.py", True),
        ("/home/anna/train.py", False),
    ],
)
def test_python_in_the_users_home_is_not_the_users_code(file: str, is_user_frame: bool) -> None:
    assert stacks.is_user_frame(Frame(file, 1, "f"), LABELS, ["/home/ann"]) is is_user_frame


@pytest.mark.parametrize(
    ("frames", "collective"),
    [
        ([(f"{TORCH}/autograd/graph.py", "_engine_run_backward")], "all_reduce"),
        (
            [
                (f"{TORCH}/distributed/distributed_c10d.py", "barrier"),
                (f"{TORCH}/distributed/c10d_logger.py", "wrapper"),
                (CELL, "train_batch"),
            ],
            "barrier",
        ),
        (
            [
                (f"{TORCH}/distributed/distributed_c10d.py", "all_gather"),
                (f"{TORCH}/distributed/c10d_logger.py", "wrapper"),
                (f"{TORCH}/distributed/distributed_c10d.py", "all_gather_object"),
                (f"{TORCH}/distributed/c10d_logger.py", "wrapper"),
                (CELL, "train_batch"),
            ],
            "all_gather_object",
        ),
        (
            [
                (f"{CORE}/ranks/star.py", "_run"),
                (f"{CORE}/ranks/star.py", "_collect"),
                (f"{CORE}/ranks/star.py", "_share"),
                (f"{CORE}/ranks/star.py", "barrier"),
                (f"{CORE}/distributed.py", "barrier"),
                (CELL, "train"),
            ],
            "barrier",
        ),
        (
            [
                (f"{TORCH}/distributed/utils.py", "_verify_param_shape_across_processes"),
                (f"{TORCH}/nn/parallel/distributed.py", "__init__"),
                (CELL, "__init__"),
            ],
            "DistributedDataParallel",
        ),
        ([(CELL, "hook"), (f"{TORCH}/autograd/graph.py", "_engine_run_backward")], ""),
        ([(f"{TORCH}/distributed/elastic/agent/server/api.py", "run")], ""),
        (
            [(f"{CORE}/ranks/torch_group.py", "reduce_"), (f"{CORE}/distributed.py", "_sum")],
            "all_reduce",
        ),
        ([(f"{CORE}/distributed.py", "gather_"), (CELL, "train")], "gather"),
        ([(f"{TORCH}/distributed/distributed_c10d.py", "_wait"), (CELL, "train")], ""),
        ([(CELL, "train_batch")], ""),
        ([], ""),
    ],
)
def test_collectives_are_recognised(frames: list[tuple[str, str]], collective: str) -> None:
    assert stacks.collective_of([Frame(file, 1, name) for file, name in frames]) == collective


def test_a_debugger_is_recognised() -> None:
    frames = [Frame("/usr/lib/python3.11/cmd.py", 126, "cmdloop"), Frame("/u/pdb.py", 3, "f")]
    assert stacks.is_debugged(frames)
    assert not stacks.is_debugged(frames[:1])
    assert stacks.is_debugged([*frames[:1] * 11, frames[1]])
    assert not stacks.is_debugged([*frames[:1] * 12, frames[1]])  # it has called the user's code


def test_the_flight_recorder_is_read() -> None:
    def entry(number: int, *, retired: bool, state: str = "scheduled") -> dict[str, object]:
        return {
            "collective_seq_id": number,
            "profiling_name": "gloo:all_reduce",
            "input_sizes": [[3]],
            "input_dtypes": ["Float"],
            "process_group": ["0", "default_pg"],
            "retired": retired,
            "state": state,
        }

    entries = [entry(number, retired=True) for number in range(8)]
    found = read_recorder(json.dumps({"entries": [*entries, entry(8, retired=False)]}).encode())
    assert len(found) == 5
    assert str(found[-1]) == "8: all_reduce [3] float32, pending"
    assert pending(found) == found[-1]
    done = entry(9, retired=False, state="completed")
    assert pending(read_recorder(json.dumps({"entries": [done]}).encode())) is None


@pytest.mark.parametrize("data", [b"", b"[]", b'{"entries": [1]}', b"{", b'{"entries": null}'])
def test_an_unknown_recorder_has_no_entries(data: bytes) -> None:
    assert read_recorder(data) == []


def test_lines_of_source_are_shortened() -> None:
    assert stacks.call_in("a" * 60) == "a" * 60
    assert stacks.call_in("a" * 61) == "a" * 59 + "…"
    frames = [Frame("/work/train.py", 1, "f")]
    text = stacks.stack_text(frames, {}, lambda file, line: "b" * 300)
    assert text.splitlines() == ['File "/work/train.py", line 1, in f', "    " + "b" * 200]


def test_a_stack_of_our_own_frames_alone_is_shown() -> None:
    frames = [Frame(f"{CORE}/context.py", line, "run") for line in range(20)]
    lines = stacks.stack_text(frames, {}, lambda file, line: "").splitlines()
    assert lines == [
        f'File "{CORE}/context.py", line {line}, in run' for line in range(13, -1, -1)
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "8: all_reduce [4] float32, done"),
        ({"retired": False}, "8: all_reduce [4] float32, pending"),
        ({"process_group": ["3", "tp"]}, "8 of group 3: all_reduce [4] float32, done"),
        ({"process_group": ["default_pg", ""]}, "8: all_reduce [4] float32, done"),
        ({"input_sizes": [], "output_sizes": [[2, 3]]}, "8: all_reduce [2, 3] float32, done"),
        ({"input_dtypes": [], "output_dtypes": ["Long"]}, "8: all_reduce [4] int64, done"),
        ({"input_dtypes": ["Float8"]}, "8: all_reduce [4] float8, done"),
        ({"input_sizes": [], "input_dtypes": []}, "8: all_reduce, done"),
        ({"profiling_name": ""}, "8: a collective [4] float32, done"),
        ({"profiling_name": "nccl:allgather"}, "8: all_gather [4] float32, done"),
        ({"collective_seq_id": None}, "0: all_reduce [4] float32, done"),
        ({"process_group": None}, "8 of group : all_reduce [4] float32, done"),
    ],
)
def test_a_collective_of_the_recorder_is_told_as_far_as_it_is_known(
    changes: dict[str, object], text: str
) -> None:
    entry = {
        "collective_seq_id": 8, "profiling_name": "gloo:all_reduce", "input_sizes": [[4]],
        "input_dtypes": ["Float"], "process_group": ["0", ""], "retired": True,
    }  # fmt: skip
    (found,) = read_recorder(json.dumps({"entries": [{**entry, **changes}]}).encode())
    assert str(found) == text
