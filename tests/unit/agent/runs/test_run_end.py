"""The end of a run of programs in its journal, and the output of a crashed rank as a traceback."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from det_jupyter.agent.runs import working_folder
from det_jupyter.agent.runs.file_chunks import MAX_RECORD_BYTES
from det_jupyter.agent.runs.run import new_run
from det_jupyter.agent.runs.run_end import crash_output, write_end
from det_jupyter.agent.runs.working_folder import prepare_working_folder
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import CheckpointRef, CrashOutput, GangExited
from det_jupyter.contract.messages.requests import ContextRef
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.journal import (
    MetricsReported,
    RankFailure,
    RankStarted,
    Record,
    RunEnded,
    TargetReached,
    parse_line,
    to_line,
)
from det_jupyter.contract.run.output_lines import read_end
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import LaunchError
from det_jupyter.pytorch.parallel.replicas import DistributedModel
from tests.integration.agent_support import make_plan

PLAN = make_plan("1.1.1", [], config={"entrypoint": "python3 train.py"})
STARTED = RankStarted(at=1.0, pid=1, backend="gloo", device="cpu")
FAILED = RankFailure(at=2.0, rank=1, error="ValueError: no", traceback="")
COMPLETED = RunEnded(at=9.0, reason="completed", steps_completed=5)
REACHED = TargetReached(at=9.0, steps_completed=5, target=Length("batches", 100))


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    create_page(tmp_path / "control")
    return RunDir(tmp_path)


def journal(folder: RunDir, rank: int, *records: Record) -> None:
    folder.journal(rank).write_text("".join(map(to_line, records)))


def metrics(steps: int) -> MetricsReported:
    return MetricsReported(at=1.5, group="training", steps_completed=steps, metrics={})


def ended(
    folder: RunDir,
    codes: tuple[int | None, ...] = (0,),
    *,
    killed: bool = False,
    lost: bool = False,
) -> list[Record]:
    """Return what is added to the chief's journal."""
    before = folder.journal(0).read_text() if folder.journal(0).exists() else ""
    exited = GangExited(
        allocation_id="1.1.1", at=9.0, exit_codes=dict(enumerate(codes)), killed=killed, lost=lost
    )
    write_end(PLAN, folder, exited)
    after = folder.journal(0).read_text() if folder.journal(0).exists() else ""
    return [parse_line(line) for line in after.removeprefix(before).splitlines() if line]


def test_processes_that_exit_with_0_have_completed_what_their_ranks_reported(
    folder: RunDir,
) -> None:
    journal(folder, 0, STARTED, metrics(3))
    journal(folder, 1, metrics(5))
    assert ended(folder) == [REACHED, COMPLETED]


def test_steps_are_also_in_the_control_page_and_the_checkpoint(folder: RunDir) -> None:
    page = ControlPage(folder.control)
    page.batch_writer(1)(6)
    assert ended(folder) == [REACHED, COMPLETED]
    folder.journal(0).unlink()
    checkpoint = CheckpointRef(uuid="u", path="p", steps_completed=50)
    plan = PLAN.model_copy(update={"checkpoint": checkpoint})
    write_end(plan, folder, GangExited(allocation_id="1.1.1", at=9.0, exit_codes={0: 0}))
    assert '"steps_completed":50' in folder.journal(0).read_text().splitlines()[-1]


def test_a_run_that_was_extended_has_reached_the_farther_target(folder: RunDir) -> None:
    ControlPage(folder.control).extend(300, is_last=True)
    reached, _ = ended(folder)
    assert isinstance(reached, TargetReached)
    assert reached.target == Length("batches", 300)


def test_one_that_leaves_as_it_was_asked_to_is_preempted(folder: RunDir) -> None:
    ControlPage(folder.control).acknowledge()
    journal(folder, 0, metrics(5))
    assert ended(folder) == [RunEnded(at=9.0, reason="preempted", steps_completed=5)]


@pytest.mark.parametrize("codes", [(1,), (0, -9), (None,)])
def test_other_exit_codes_tell_of_no_end(folder: RunDir, codes: tuple[int | None, ...]) -> None:
    assert ended(folder, codes) == []


def test_a_run_that_was_ended_from_outside_has_no_end_of_its_own(folder: RunDir) -> None:
    assert ended(folder, killed=True) == []
    assert ended(folder, lost=True) == []


def test_a_worker_that_ended_with_a_failure_is_not_hidden_by_its_launcher(
    folder: RunDir,
) -> None:
    journal(folder, 0, STARTED, metrics(5))
    journal(folder, 1, metrics(5), FAILED)
    assert ended(folder) == []
    journal(folder, 1, FAILED, STARTED, metrics(5))  # it was started again
    assert ended(folder) == [REACHED, COMPLETED]


def test_records_of_any_length_count_wherever_they_are(folder: RunDir) -> None:
    long = replace(FAILED, traceback="x" * 1_000_000)
    journal(folder, 0, metrics(5), long)
    assert ended(folder) == []
    journal(folder, 0, metrics(5), long, STARTED)
    assert ended(folder) == [REACHED, COMPLETED]
    journal(folder, 0, RunEnded(at=3.0, reason="stopped", steps_completed=2), long, STARTED)
    assert ended(folder) == []


@pytest.mark.parametrize(
    "strange",
    ["[" * 200_000, '{"kind":"failure","x":"' + "x" * MAX_RECORD_BYTES + '"}'],
    ids=["nested", "long"],
)
def test_what_is_no_record_does_not_keep_a_run_from_ending(folder: RunDir, strange: str) -> None:
    folder.journal(0).write_text(f"{to_line(metrics(5))}{strange}\n")
    assert ended(folder)[-2:] == [REACHED, COMPLETED]


def test_what_a_rank_has_said_of_the_end_stands(folder: RunDir) -> None:
    journal(folder, 1, RunEnded(at=3.0, reason="stopped", steps_completed=2))
    assert ended(folder) == []


def test_a_record_that_was_cut_off_stays_on_its_own_line(folder: RunDir) -> None:
    folder.journal(0).write_text(to_line(metrics(5)) + '{"at":1')
    assert ended(folder) == [REACHED, COMPLETED]


def test_a_context_that_is_not_stored_any_more_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    context = ContextRef(blob="0" * 64, num_files=1, size_bytes=1)
    capsule = PLAN.capsule.model_copy(update={"context": context})
    run = new_run(PLAN.model_copy(update={"capsule": capsule}), sockets=tmp_path / "s")
    run.prepare()
    with pytest.raises(LaunchError, match="the context directory is not stored any more"):
        asyncio.run(prepare_working_folder(run))


def test_folder_that_only_the_notebooks_computer_has_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    plan = PLAN.model_copy(update={"cwd": "/home/elsewhere"})
    run = new_run(plan, sockets=tmp_path / "s", remote_agent="b")
    run.prepare()
    problem = r"agent b has no folder /home/elsewhere.* submit with a context directory"
    with pytest.raises(LaunchError, match=problem):
        asyncio.run(prepare_working_folder(run))


def test_working_folder_that_does_not_answer_holds_no_start_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(_: str) -> str:
        threading.Timer(0.5, answers.set).start()
        return "" if answers.wait(600) else "late"

    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(paths, "find_missing_folder", hang)
    monkeypatch.setattr(working_folder, "_FOLDER_S", 0.05)
    run = new_run(PLAN, sockets=tmp_path / "s")
    with pytest.raises(StartFailed, match=r"does not answer within 0\.05 s"):
        asyncio.run(prepare_working_folder(run))


PACKAGE = Path(__file__).parents[4] / "det_jupyter"
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
    words = crash_output(CRASH, LABELS, "/home/me/notebooks")
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


def test_a_crash_while_garbage_is_collected_is_placed() -> None:
    head = "Current thread 0x00007f99ed7d5b80 (most recent call first):\n"
    words = crash_output(
        CRASH.replace(head, f"{head}  Garbage-collecting\n"), LABELS, "/home/me/notebooks"
    )
    assert words is not None
    assert words.where == "helpers.py, line 3, in look"


def test_a_crash_in_a_thread_is_placed_in_that_thread() -> None:
    main = '  File "<cell 5>", line 40 in train_batch\n'
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f99c17fa6c0 (most recent "
        f'call first):\n  File "<cell 5>", line 31 in work\n\nThread 0x01:\n{main}'
    )
    words = crash_output(text, LABELS, "/home/me/notebooks")
    assert words is not None
    assert words.where == "Cell In[5], line 31, in work"
    of_a_library = text.replace('"<cell 5>", line 31 in work', '"/usr/lib/x.py", line 3 in run')
    words = crash_output(of_a_library, LABELS, "/home/me/notebooks")
    assert words is not None
    assert words.where == "Cell In[5], line 40, in train_batch"


def test_an_exception_of_cpp_is_the_cause_and_a_mismatch_is_put_into_words() -> None:
    words = crash_output(MISMATCH, LABELS, "/home/me/notebooks")
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
    words = crash_output(text, LABELS, "/home/me/notebooks")
    assert words is not None
    assert words.error == (
        "requires_grad has changed on this rank and not on all the others; set it to the same on "
        "all"
    )
    assert words.where == "Cell In[5], line 31, in train_batch"
    assert "_agree_on_trained" not in words.traceback


def test_an_output_without_a_crash_is_told_by_its_last_lines() -> None:
    text = "".join(f"line {i}\n" for i in range(100))
    words = crash_output(text, {}, "/")
    assert words is not None
    assert words.traceback.startswith("It printed at last:\nline 80\n")
    assert words.traceback.endswith("line 99\n")
    assert (words.error, words.where) == ("", "")


@pytest.mark.parametrize(
    "text", ["Fatal Python error: x", "Fatal Python error: \n\nThread 0x1:\n", "\0\n" * 9, "\n"]
)
def test_any_text_can_be_read(text: str) -> None:
    crash_output(text, LABELS, "/home")


def test_of_a_long_output_only_the_end_is_read_and_a_missing_one_says_nothing(
    tmp_path: Path,
) -> None:
    output = tmp_path / "output-0"
    assert crash_output(read_end(output), {}, "/") is None
    output.write_bytes(b"x" * 10_000_000 + b"\xff\nthe end\n")
    words = crash_output(read_end(output), {}, "/")
    assert words is not None
    assert words.traceback.endswith("the end\n")
    assert len(words.traceback) < 3000


def test_what_a_library_has_said_is_the_error_and_some_lines_before_it_are_shown() -> None:
    said = "x" * 400
    lines = [f"line {number}" for number in range(9)]
    text = "\n".join([*lines, f"  what():  {said}", "Fatal Python error: Aborted", ""])
    crash = crash_output(text, {}, "/work")
    assert crash is not None
    assert (crash.error, crash.where) == (said[:300], "")
    assert crash.traceback.splitlines() == [
        "line 5", "line 6", "line 7", "line 8", f"  what():  {said}",
        "Fatal Python error: Aborted", "Stack of the crash (most recent call last):",
    ]  # fmt: skip


def test_a_program_that_reported_nothing_has_trained_no_step(folder: RunDir) -> None:
    assert ended(folder) == [
        TargetReached(at=9.0, steps_completed=0, target=Length("batches", 100)),
        RunEnded(at=9.0, reason="completed", steps_completed=0),
    ]
