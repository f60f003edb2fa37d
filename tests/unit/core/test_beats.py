"""The thread that writes a rank's evidence once a second, and its answers to the agent."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.evidence_page import EvidencePage, create_evidence_page
from det_jupyter.core import evidence
from det_jupyter.core.evidence import give_evidence


class Beats:
    """A clock by which a thread ends after so many beats."""

    def __init__(self, num: int, between: Callable[[], object]) -> None:
        self._left, self._between = num, between

    def sleep(self, seconds: float) -> None:
        self._left -= 1
        if not self._left:
            raise SystemExit
        self._between()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(evidence, "_current", None)
    folder = RunDir(tmp_path)
    create_evidence_page(folder.evidence, 2)
    return folder


@pytest.fixture
def page(folder: RunDir) -> Iterator[EvidencePage]:
    page = EvidencePage(folder.evidence)
    yield page
    page.close()


def beat(
    monkeypatch: pytest.MonkeyPatch,
    num: int,
    begin: Callable[[], object],
    between: Callable[[], object] = lambda: None,
) -> None:
    """Call `begin`, and let the thread that it starts beat so often, in this thread."""
    monkeypatch.setattr(evidence, "time", Beats(num, between))

    def run(thread: threading.Thread) -> None:
        with suppress(SystemExit):
            thread.run()

    monkeypatch.setattr(evidence, "start_own", run)
    begin()


def loaded(monkeypatch: pytest.MonkeyPatch, name: str, module: Any) -> None:
    """Have a module be loaded."""
    monkeypatch.setitem(sys.modules, name, cast(ModuleType, module))


def test_the_record_of_a_rank_tells_that_it_lives(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "num_begun", lambda: 4)
    monkeypatch.setattr(evidence, "own_thread_ids", lambda: {11, 12})
    group = SimpleNamespace(_get_sequence_number_for_group=lambda: 9)
    world = SimpleNamespace(default_pg=group)
    loaded(monkeypatch, "torch.distributed.distributed_c10d", SimpleNamespace(_world=world))
    beat(monkeypatch, 3, lambda: give_evidence(folder, 1))
    found = page.read(1)
    assert (found.pid, found.beats, found.exchanges, found.sequence) == (os.getpid(), 3, 4, 9)
    assert found.own_threads == {11, 12}
    assert (found.answered, page.read(0).pid) == (0, 0)
    assert folder.stacks(1).read_bytes() == b"", "nobody has asked"


@pytest.mark.parametrize("world", [None, SimpleNamespace(default_pg=None)])
def test_without_a_group_no_collective_is_counted(
    world: Any, folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, "torch.distributed.distributed_c10d", SimpleNamespace(_world=world))
    beat(monkeypatch, 1, lambda: give_evidence(folder, 1))
    assert page.read(1).sequence == 0


def test_a_question_is_answered_once_with_stacks_and_what_torch_has_recorded(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, bool]] = []

    def dump(collectives: bool, stacks: bool) -> bytes | str:
        asked.append((collectives, stacks))
        return b'{"entries": 1}' if len(asked) == 1 else '{"entries": 2}'

    recorder = SimpleNamespace(_dump_fr_trace_json=dump)
    torch = SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=recorder))
    loaded(monkeypatch, "torch", torch)
    page.set(1, "wanted", 7)
    beat(monkeypatch, 3, lambda: give_evidence(folder, 1))
    assert page.read(1).answered == 7
    assert asked == [(True, False)]
    assert folder.recorder(1).read_bytes() == b'{"entries": 1}'
    stacks = folder.stacks(1).read_text()
    assert "in beat" in stacks

    monkeypatch.setattr(evidence, "_current", None)
    page.set(1, "wanted", 8)
    beat(monkeypatch, 1, lambda: give_evidence(folder, 1))
    assert folder.recorder(1).read_bytes() == b'{"entries": 2}'
    assert folder.stacks(1).read_text().count("_write_stacks") == 1, "only the last answer"
    assert not [path for path in folder.path.iterdir() if path.name.endswith(".new")]


def test_a_torch_that_records_nothing_still_has_stacks(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, "torch", SimpleNamespace())
    page.set(0, "wanted", 1)
    beat(monkeypatch, 1, lambda: give_evidence(folder, 0))
    assert page.read(0).answered == 1
    assert "in beat" in folder.stacks(0).read_text()
    assert not folder.recorder(0).exists()


def test_a_process_gives_evidence_once(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice() -> None:
        give_evidence(folder, 0)
        give_evidence(folder, 1)

    beat(monkeypatch, 2, twice)
    assert (page.read(0).beats, page.read(1).beats) == (2, 0)


@pytest.mark.parametrize("rank", [2, 3])
def test_a_rank_that_the_page_has_no_record_for_gives_none(
    rank: int, folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(monkeypatch, 1, lambda: give_evidence(folder, rank))
    assert evidence._current is None


def test_a_run_without_a_page_is_given_no_evidence(
    tmp_path: Path, folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(monkeypatch, 1, lambda: give_evidence(RunDir(tmp_path / "gone"), 0))
    assert evidence._current is None


def test_a_process_that_was_forked_answers_with_stacks_of_its_own(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = evidence._Evidence(EvidencePage(folder.evidence), 1, folder)
    page.set(1, "children", 5)  # a question from before the fork
    own = folder.stacks(1, os.getpid())
    seen: list[bool] = []

    def ask() -> None:
        seen.append(own.exists())
        if len(seen) == 2:
            page.set(1, "children", 6)

    beat(monkeypatch, 5, current.follow_in_child, ask)
    assert seen == [False, False, True, True]
    assert "in _answer_in_child" in own.read_text()


def test_a_process_that_was_forked_notes_no_collectives(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = evidence._Evidence(EvidencePage(folder.evidence), 1, folder)
    monkeypatch.setattr(evidence, "_current", current)
    entered = evidence._noted("barrier", lambda group: "done")
    assert entered(None) == "done"
    current.pid += 1
    assert entered(None) == "done"
    assert page.read(1).entered == 1


def test_the_methods_of_torchs_groups_are_wrapped_once(
    folder: RunDir, page: EvidencePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ProcessGroup:
        def broadcast(self, tensors: Any) -> str:
            return "done"

    loaded(monkeypatch, "torch.distributed", SimpleNamespace())
    groups = SimpleNamespace(ProcessGroup=ProcessGroup)
    loaded(monkeypatch, "torch._C._distributed_c10d", groups)
    beat(monkeypatch, 3, lambda: give_evidence(folder, 0))
    tensor = SimpleNamespace(shape=(3,), dtype="torch.float32")
    assert ProcessGroup().broadcast([tensor, SimpleNamespace(shape=(4,), dtype=None)]) == "done"
    found = page.read(0)
    assert found.entered == 1, "also after three beats"
    assert found.collective == "broadcast [3] float32"
