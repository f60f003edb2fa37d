"""Pages of ranks on other computers, received as messages; no process group exists."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.step_page import StepPage
from det_jupyter.pytorch.data.generators import pack_generators, unpack_generators
from det_jupyter.pytorch.training import far_pages
from det_jupyter.pytorch.training.far_pages import FarPages
from tests.waiting import wait_until

ENDS = ({("10.0.0.1", 1)}, {("10.0.0.2", 2)})  # of the ranks' connections


class Computers:
    """Two ranks, each on a computer of its own, which exchange their messages in turn."""

    def __init__(self, folder: Path) -> None:
        self.messages = [torch.zeros(0, dtype=torch.uint8)] * 2
        self.pages = list[StepPage]()
        self.ranks = list[FarPages]()
        for rank in range(2):
            run = RunDir(folder / str(rank))
            run.path.mkdir()
            run.part.write_text(f"[{rank}]")
            create_page(run.control)
            self.pages.append(StepPage.create(run.step(rank), os.getpid()))
            self.ranks.append(FarPages(self.pages[rank], run, ENDS))

    def all_gather(self, received: list[torch.Tensor], sent: torch.Tensor) -> None:
        own = 0 if sent is self.ranks[0]._sent else 1
        self.messages[own] = sent.clone()
        for to, message in zip(received, self.messages, strict=True):
            to[: len(message)] = message

    def exchange(self, steps: int) -> None:
        for rank in (*self.ranks, self.ranks[0]):  # the first one gets the other's afterwards
            rank.exchange(steps)


@pytest.fixture
def computers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Computers]:
    made = Computers(tmp_path)
    monkeypatch.setattr(torch.distributed, "all_gather", made.all_gather)
    yield made
    for rank in made.ranks:
        rank.close()


def note(page: StepPage, steps: int) -> float:
    """Write the generators' states; return the number that is drawn next."""
    slot = page.slot_for(steps)
    slot.head[1] = 0
    length = pack_generators(slot.states)
    slot.head[0], slot.head[1] = steps, length
    return random.random()


def test_a_rank_has_the_states_of_the_last_two_batches_and_the_metrics_before_them(
    computers: Computers,
) -> None:
    drawn = []
    for steps in (4, 5):
        note(computers.pages[0], steps)
        drawn.append(note(computers.pages[1], steps))
        computers.exchange(steps)
        computers.ranks[1].note_row(steps, [0.5 * steps, 16.0])
    (far,) = computers.ranks[0].pages.values()
    for steps, expected in zip((4, 5), drawn, strict=True):
        slot = far.slot_of(steps)
        assert slot is not None
        unpack_generators(slot.states[: slot.head[1]].tobytes())
        assert random.random() == expected
    assert far.slot_of(6) is None
    assert far.rows(4, 5, 2) == [(2.0, 16.0), None]
    assert not far.is_alive


def test_states_that_a_rank_has_not_written_are_not_there(computers: Computers) -> None:
    computers.exchange(4)
    (far,) = computers.ranks[0].pages.values()
    assert far.slot_of(4) is None


def test_metrics_of_all_batches_of_a_window_are_sent(computers: Computers) -> None:
    for steps in (4, 5, 6):
        computers.ranks[1].note_row(steps, [0.5 * steps, 16.0])
    computers.exchange(7)
    (far,) = computers.ranks[0].pages.values()
    assert far.rows(4, 7, 2) == [(2.0, 16.0), (2.5, 16.0), (3.0, 16.0), None]


def test_as_many_rows_are_sent_as_a_message_has_room_for(computers: Computers) -> None:
    note(computers.pages[1], 200)
    for steps in range(100, 200):
        computers.ranks[1].note_row(steps, [float(steps)] * 20)
    computers.exchange(200)
    (far,) = computers.ranks[0].pages.values()
    assert far.slot_of(200) is not None
    assert far.rows(199, 199, 20) == [(199.0,) * 20]
    assert far.rows(100, 100, 20) == [None]


def test_many_metrics_are_not_sent(computers: Computers) -> None:
    note(computers.pages[1], 3)
    computers.ranks[1].note_row(2, [1.0] * 65)
    computers.exchange(3)
    (far,) = computers.ranks[0].pages.values()
    assert far.slot_of(3) is not None
    assert far.rows(2, 2, 65) == [None]


def test_connections_to_other_computers_are_shut_when_they_are_gone(
    computers: Computers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shut = list[Any]()
    monkeypatch.setattr(far_pages, "shut_connections", shut.append)
    with closing(ControlPage(RunDir(tmp_path / "0").control)) as page:
        page.note_parted()
    wait_until(lambda: shut, "the thread has seen it")
    assert shut == [ENDS[1]]
