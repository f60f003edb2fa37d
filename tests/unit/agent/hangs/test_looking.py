"""What a closer look at a rank concludes from its stack and the flight recorder."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.agent.hangs import looking
from det_jupyter.agent.hangs.looking import (
    Looker,
    Seen,
    UserCode,
    evidence_lines,
    spied_stack,
    waits_for_loader,
)
from det_jupyter.agent.hangs.process_facts import state_of
from det_jupyter.agent.hangs.recorder import Recorded
from det_jupyter.agent.hangs.stacks import Frame
from det_jupyter.agent.hangs.stall_watch import Finding, OthersSample, RankSample, StallWatch
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.run.evidence_page import EvidencePage, RankEvidence
from tests.processes import wait_until
from tests.unit.agent.hangs.watched_ranks import (
    answering,
    dumped,
    make_run,
    recorded,
    sleeping,
)

BACKWARD = [
    Frame("/p/site-packages/torch/autograd/graph.py", 865, "_engine_run_backward"),
    Frame("/p/site-packages/torch/_tensor.py", 600, "backward"),
    Frame("<cell 3>", 8, "train_batch"),
]
BARRIER = [Frame("/p/site-packages/torch/distributed/distributed_c10d.py", 4800, "barrier")]
PENDING = Recorded(number=7, group="0", text="all_reduce [4] float32", is_pending=True)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))


def is_of_cell(frame: Frame) -> bool:
    return frame.file == "<cell 3>"


def test_a_loop_that_polls_stays_at_its_line_whatever_it_calls() -> None:
    cell = Frame("<cell 3>", 8, "train_batch")
    inner = ["wait", "get", "exists"]
    looks = [
        Seen(pid=1, frames=[Frame("/lib/queue.py", line, name), cell]).look(
            is_of_cell, spins=False
        )
        for line, name in enumerate(inner)
    ]
    assert looks[0] == looks[1] == looks[2]
    other = Seen(pid=1, frames=[cell._replace(line=9)]).look(is_of_cell, spins=False)
    assert other.position != looks[0].position


@pytest.mark.parametrize(
    ("seen", "spins", "waits"),
    [
        (Seen(pid=1, frames=BACKWARD), False, True),  # with gloo this thread computes it itself
        (Seen(pid=1, frames=BACKWARD), True, False),
        (Seen(pid=1, frames=BACKWARD, recorded=[replace(PENDING, is_pending=False)]), True, False),
        (Seen(pid=1, frames=BACKWARD, recorded=[PENDING]), True, True),
        (Seen(pid=1, frames=BARRIER), True, True),
    ],
)
def test_a_backward_pass_on_cuda_waits_if_a_collective_is_pending(
    seen: Seen, spins: bool, waits: bool
) -> None:
    assert seen.look(is_of_cell, spins=spins).waits is waits


def test_a_backward_pass_that_is_compiled_on_cuda_is_no_stall() -> None:
    """The main thread sleeps, and torch's thread for the device compiles for minutes."""
    watch, finding = StallWatch(6.0), Finding()
    for second in range(300):
        sample = RankSample(
            rank=0,
            batch=1,
            beats=second + 1,
            others=OthersSample(cpu_s=float(second)),
            spins=True,
            look=Seen(pid=1, frames=BACKWARD).look(is_of_cell, spins=True)
            if finding.wants_look
            else None,
        )
        finding = watch.step([sample], 1000.0 + second)
        assert finding.stalled is None, f"after {second} s"


@pytest.fixture
def run(tmp_path: Path) -> AgentRun:
    return make_run(tmp_path)


@pytest.fixture
def page(run: AgentRun) -> Iterator[EvidencePage]:
    page = EvidencePage(run.dir.evidence)
    yield page
    page.close()


def spied(monkeypatch: pytest.MonkeyPatch, stacks: dict[int, list[Frame]]) -> list[int]:
    """Let py-spy read these stacks; return the list of the processes that it is asked for."""
    asked: list[int] = []

    def spy(pid: int, *_: str) -> str:
        asked.append(pid)
        frames = [
            {"filename": frame.file, "line": frame.line, "name": frame.name}
            for frame in stacks.get(pid, [])
        ]
        threads = [{"os_thread_id": 1, "frames": []}, {"os_thread_id": pid, "frames": frames}]
        return json.dumps(threads) if pid in stacks else ""

    monkeypatch.setattr(looking, "spy", spy)
    return asked


def test_a_rank_that_answers_tells_its_stack_and_its_collectives(
    run: AgentRun, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spied(monkeypatch, {})
    run.dir.stacks(0).write_text(dumped([BARRIER[0]]))
    run.dir.recorder(0).write_bytes(recorded(7))
    with answering(page, 0, 1):
        seen = Looker(run, page).look({0: os.getpid(), 1: os.getppid()})
    assert (seen[0].frames, [str(one) for one in seen[0].recorded]) == (
        BARRIER,
        ["7: all_reduce [4] float32, pending"],
    )
    assert (seen[1].frames, seen[1].recorded, seen[1].is_answered) == ([], [], True)
    assert (seen[0].pid, seen[1].pid) == (os.getpid(), os.getppid())
    assert not seen[0].is_traced
    assert asked == []


def test_a_rank_that_cannot_answer_is_read_from_outside_once_for_each_beat(
    run: AgentRun, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "_ANSWER_S", 0.01)
    here = os.getpid()
    asked = spied(monkeypatch, {here: BACKWARD})
    run.dir.stacks(0).write_text(dumped(BARRIER))  # of an earlier look
    page.set(0, "beats", 3)
    looker = Looker(run, page)
    for _ in range(2):
        seen = looker.look({0: here})[0]
        assert (seen.frames, seen.is_answered) == (BACKWARD, True)
    assert page.get(0, "wanted") == page.get(0, "answered") + 1
    assert asked == [here]
    page.set(0, "beats", 4)  # it has run in between
    looker.look({0: here})
    assert asked == [here, here]
    assert not looker.look({0: os.getppid()})[0].is_answered  # another process, and no py-spy


def test_a_rank_without_a_thread_that_answers_is_not_waited_for(
    run: AgentRun, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    spied(monkeypatch, {})
    seen = Looker(run, page).look({1: os.getpid()})
    assert (seen[1].frames, seen[1].is_answered) == ([], True)


def test_a_process_of_the_data_loader_is_named_if_it_is_stopped_or_in_the_users_code(
    run: AgentRun, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Frame(str(Path(run.plan.cwd) / "data.py"), 1, "read")
    Path(theirs.file).write_text("    time.sleep(1000)\n")
    monkeypatch.setattr(looking, "_ANSWER_S", 0.01)
    looker, code = Looker(run, page), UserCode(run)
    with sleeping(10) as pids:
        stacks = {pids[0]: BARRIER, pids[1]: [BARRIER[0], theirs], pids[9]: [theirs]}
        asked = spied(monkeypatch, stacks)
        run.dir.stacks(0, pids[0]).write_text(dumped([theirs]))  # of an earlier look
        told = looker.child_in(0, pids, code)
        assert told == f"(process {pids[1]}) is in `time.sleep` (data.py, line 1)"
        assert asked == pids[:2]
        assert not [*run.dir.path.glob("stacks*")]  # which is out of date at the next look
        assert page.get(0, "children") == 1
        assert looker.child_in(0, [pids[0], *pids[2:]], code) == ""  # eight are looked at
        os.kill(pids[3], signal.SIGSTOP)
        wait_until(lambda: state_of(pids[3]) == "T", "it is stopped")
        told = looker.child_in(0, [2**22 + 1, *pids], code)
        assert told.startswith(f"(process {pids[3]}) is stopped by a signal")


def test_lines_of_the_users_code_are_found_in_cells_and_in_files(tmp_path: Path) -> None:
    cells = {"<cell 3>": {"label": "Cell In[3]", "source": "a()\nb(1)\n"}}
    sources = BlobStore(paths.data_dir() / "blobs").put(json.dumps(cells).encode())
    capsule = Capsule(entrypoint="Trial", payload="", sources=sources)
    code = UserCode(make_run(tmp_path, capsule=capsule))
    module = tmp_path / "code" / "data.py"
    module.write_text("one()\n")
    assert [code.source("<cell 3>", line) for line in range(4)] == ["", "a()", "b(1)", ""]
    assert (code.source(str(module), 1), code.source("/nowhere.py", 1)) == ("one()\n", "")
    module.write_text("another()\n# longer\n")  # the user edits it meanwhile
    assert code.source(str(module), 1) == "another()\n"
    inner = Frame("/usr/lib/python3.11/queue.py", 171, "get")
    frames = [inner, Frame("<cell 3>", 2, "train_batch"), Frame(str(module), 1, "main")]
    assert [code.contains(frame) for frame in frames] == [False, True, True]
    assert code.place(frames) == ("b", "cell 3, line 2")
    assert code.stack(frames[1:]).splitlines() == [
        f'File "{module}", line 1, in main',
        "    another()",
        "Cell In[3], line 2, in train_batch",
        "    b(1)",
    ]


def test_modules_of_the_notebook_are_the_users_code_wherever_the_run_has_them(
    tmp_path: Path,
) -> None:
    code = UserCode(make_run(tmp_path, capsule=Capsule(entrypoint="T", payload="", sources="")))
    assert [
        code.contains(Frame(str(tmp_path / file), 1, "f"))
        for file in ("code/train.py", "data/code/1/nets.py", "elsewhere/other.py")
    ] == [True, True, False]


def test_a_data_loader_is_recognised() -> None:
    frames = [Frame("/p/torch/utils/data/dataloader.py", 1, "_next_data"), *BACKWARD]
    assert waits_for_loader(frames)
    assert not waits_for_loader(BACKWARD)


PY_SPY = """#!/bin/sh
test "$1 $2 $3 $4" = "dump --nonblocking --pid {pid}" || exit 1
echo '{told}'
exit {code}
"""


@pytest.mark.parametrize(
    ("told", "code", "frames"),
    [
        ('[{"os_thread_id": 9, "frames": []}, {"os_thread_id": 42, "frames": %s}]', 0, 1),
        ('[{"os_thread_id": 42, "frames": %s}]', 1, 0),  # it may not read the process
        ('[{"os_thread_id": 9, "frames": %s}]', 0, 0),
        ('[{"frames": %s}]', 0, 0),
        ('{"an unknown": "form"}', 0, 0),
        ("no JSON", 0, 0),
    ],
)
def test_what_py_spy_tells_of_the_main_thread_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, code: int, frames: int
) -> None:
    program = tmp_path / "py-spy"
    told = told.replace("%s", '[{"filename": "a.py", "line": 3, "name": "f", "more": 1}]')
    program.write_text(PY_SPY.format(pid=42, told=told, code=code))
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert spied_stack(42) == [Frame("a.py", 3, "f")] * frames
    assert looking.spy(42) == (f"{told}\n" if not code else "")


def test_without_py_spy_no_stack_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spied_stack(os.getpid()) == []


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ({}, []),
        (
            {"entered": 3, "collective": "all_reduce [4]"},
            ["collective 3 of its Python code: all_reduce [4]"],
        ),
        ({"sequence": 5}, ["collectives of torch's default group: 5"]),
        ({"exchanges": 6}, ["collectives of the Core API: 6"]),
    ],
)
def test_evidence_is_told_as_far_as_there_is_any(words: dict[str, Any], lines: list[str]) -> None:
    none = {name: 0 for name in ("pid", "beats", "sequence", "exchanges", "entered", "answered")}
    evidence = RankEvidence(**{**none, "own_threads": frozenset(), "collective": "", **words})
    seen = Seen(pid=1, recorded=[replace(PENDING, number=1), PENDING])
    assert evidence_lines(evidence, None, "") == lines
    assert evidence_lines(evidence, Seen(pid=1), "futex_wait") == [
        *lines,
        "its main thread waits in the kernel's futex_wait",
    ]
    assert evidence_lines(evidence, seen, "") == [
        "flight recorder: 7: all_reduce [4] float32, pending",
        *lines,
    ]


PDB = Frame("/usr/lib/python3.11/pdb.py", 3, "interaction")


@pytest.mark.parametrize(
    ("seen", "position", "is_debugged"),
    [
        (Seen(pid=1, kernel="futex_wait"), "futex_wait", False),
        (Seen(pid=1, kernel="futex_wait", frames=BARRIER), tuple(BARRIER), False),
        (Seen(pid=1, kernel="futex_wait", is_traced=True), "futex_wait", True),
        (Seen(pid=1, frames=[PDB, *BACKWARD]), (BACKWARD[2],), True),
    ],
)
def test_a_look_has_a_place_and_tells_of_debuggers(
    seen: Seen, position: object, is_debugged: bool
) -> None:
    look = seen.look(is_of_cell, spins=False)
    assert (look.position, look.is_debugged, look.is_answered) == (position, is_debugged, True)
    unanswered = replace(seen, is_answered=False)
    assert not unanswered.look(is_of_cell, spins=False).is_answered
