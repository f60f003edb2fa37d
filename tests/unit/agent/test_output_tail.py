"""What a crashed rank had printed becomes a traceback that its user can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.agent.runs.output_tail import last_words
from det_jupyter.contract.messages import CrashOutput
from det_jupyter.contract.run.output_lines import read_end
from det_jupyter.pytorch.parallel.replicas import DistributedModel

PACKAGE = Path(__file__).parents[3] / "det_jupyter"
LABELS = {"<cell 5>": "Cell In[5]"}
CRASH = f"""\
batch 6 was fine
Fatal Python error: Segmentation fault

Thread 0x00007f99c17fa6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f99ed7d5b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/notebooks/helpers.py", line 3 in look
  File "<cell 5>", line 31 in train_batch
  File "{PACKAGE}/pytorch/training/loop.py", line 233 in _train_batch
  File "{PACKAGE}/worker/zygote.py", line 342 in <module>
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy.linalg, torch._C (total: 2)
"""
MISMATCH = """\
terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 4. Received ...
Fatal Python error: Aborted

Thread 0x00007f99c17fa6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Thread 0x00007f99ed7d5b80 (most recent call first):
  File "/venv/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "<cell 5>", line 31 in train_batch
"""


def test_the_stack_of_a_crash_is_told_as_a_traceback_without_our_frames() -> None:
    words = last_words(CRASH, LABELS, "/home/me/notebooks")
    assert words == CrashOutput(
        where="helpers.py, line 3, in look",
        traceback="""\
batch 6 was fine
Fatal Python error: Segmentation fault
Stack of the crash (most recent call last):
  Cell In[5], line 31, in train_batch
  File "/home/me/notebooks/helpers.py", line 3, in look
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519, in string_at
""",
    )


def test_an_exception_of_cpp_is_the_cause_and_a_mismatch_is_put_into_words() -> None:
    words = last_words(MISMATCH, LABELS, "/home/me/notebooks")
    assert words is not None
    assert words.error == (
        "the ranks were in different collectives, or in one with tensors of different sizes "
        "(gloo got 1000 bytes, expected 4)"
    )
    assert words.where == "Cell In[5], line 31, in train_batch"
    assert words.traceback.startswith("terminate called after throwing")
    assert words.traceback.endswith("line 3252, in all_reduce\n")


def test_layers_that_were_frozen_on_some_ranks_only_are_the_cause_of_a_mismatch() -> None:
    agreeing = DistributedModel._agree_on_trained.__code__  # where the rank waits for the others
    frame = f'  File "{agreeing.co_filename}", line 180 in {agreeing.co_name}\n'
    text = MISMATCH.replace('  File "<cell 5>"', f'{frame}  File "<cell 5>"')
    words = last_words(text, LABELS, "/home/me/notebooks")
    assert words is not None
    assert words.error == (
        "requires_grad has changed on this rank and not on all the others; set it to the same on "
        "all"
    )
    assert words.where == "Cell In[5], line 31, in train_batch"
    assert "_agree_on_trained" not in words.traceback


def test_an_output_without_a_crash_is_told_by_its_last_lines() -> None:
    text = "".join(f"line {i}\n" for i in range(100))
    words = last_words(text, {}, "/")
    assert words is not None
    assert words.traceback.startswith("It printed at last:\nline 80\n")
    assert words.traceback.endswith("line 99\n")
    assert (words.error, words.where) == ("", "")


@pytest.mark.parametrize(
    "text", ["Fatal Python error: x", "Fatal Python error: \n\nThread 0x1:\n", "\0\n" * 9, "\n"]
)
def test_any_text_can_be_read(text: str) -> None:
    last_words(text, LABELS, "/home")


def test_of_a_long_output_only_the_end_is_read_and_a_missing_one_says_nothing(
    tmp_path: Path,
) -> None:
    output = tmp_path / "output-0"
    assert last_words(read_end(output), {}, "/") is None
    output.write_bytes(b"x" * 10_000_000 + b"\xff\nthe end\n")
    words = last_words(read_end(output), {}, "/")
    assert words is not None
    assert words.traceback.endswith("the end\n")
    assert len(words.traceback) < 3000
