"""The step page: what a rank has written is read by another one, also after the rank has ended."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.contract.run.step_page import PAGE_BYTES, Phase, StepPage, phases


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step-0"


def note(page: StepPage, steps: int, states: bytes) -> None:
    slot = page.slots()[steps % 2]
    slot.states[: len(states)] = states
    slot.head[0], slot.head[1] = steps, len(states)


def states_of(page: StepPage, steps: int) -> bytes | None:
    slot = page.slot_of(steps)
    return None if slot is None else slot.states[: slot.head[1]].tobytes()


def test_a_new_page_has_no_step(path: Path) -> None:
    with closing(StepPage.create(path, os.getpid())) as page:
        assert (page.phase, page.is_alive) == (Phase.TRAINING, True)
        assert [page.slot_of(steps) for steps in (0, 1, 2)] == [None] * 3
        assert page.rows(1, 1, 1) == [None]


def test_the_last_two_steps_are_read_in_another_mapping(path: Path) -> None:
    with closing(StepPage.create(path, 1)) as page, closing(StepPage(path)) as other:
        for steps in (5, 6, 7):
            note(page, steps, b"states after %d" % steps)
        found = {steps: states_of(other, steps) for steps in range(4, 9)}
        assert found == {
            4: None, 5: None, 6: b"states after 6", 7: b"states after 7", 8: None,
        }  # fmt: skip
        page.slots()[0].head[1] = 0  # a rank that is killed while it writes
        assert [states_of(other, steps) for steps in (6, 7, 8)] == [None, b"states after 7", None]
        page.set_phase(Phase.READY, 7)
        assert (other.phase, other.steps_completed) == (Phase.READY, 7)


@settings(max_examples=40)
@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 1100))
def test_metrics_of_the_last_batches_are_there_or_none(last: int, count: int, width: int) -> None:
    path = Path(os.environ["PYTEST_PAGE"]) / "step-0"
    with closing(StepPage.create(path, 1)) as page:
        for steps in range(max(1, last - 2 * count), last + 1):
            page.note_row(steps, [steps / 3] * (width - 1), steps / 3)
        first = max(1, last - count + 1)
        found = page.rows(first, last, width)
        expected = [tuple([steps / 3] * width) for steps in range(first, last + 1)]
        is_room = (width + 1) * 8 <= 8192 and count <= 65536 // (8 * (width + 1))
        if is_room:
            assert found == expected
        assert page.rows(last, last + 1, width)[1] is None


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_PAGE", str(tmp_path))


def test_only_the_phases_of_ranks_that_live_count(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    pids = {"gone": ended.pid, "ready": os.getpid(), "trains": os.getpid()}
    for name, pid in pids.items():
        with closing(StepPage.create(tmp_path / name, pid)) as page:
            if name != "trains":
                page.set_phase(Phase.READY, 3)
    (tmp_path / "damaged").write_bytes(b"x")
    paths = [tmp_path / name for name in ("missing", "damaged", *pids)]
    assert phases(paths) == [Phase.READY, Phase.TRAINING]


def test_another_file_is_no_page(path: Path) -> None:
    path.write_bytes(bytes(PAGE_BYTES - 1))
    with pytest.raises(ValueError, match="is not a step page"):
        StepPage(path)
