"""The TensorBoard of an experiment: one that runs, or a new one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from det_jupyter.client.handles import boards
from det_jupyter.client.handles.boards import board_of
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.tensorboards import Board


def board(number: int, *experiments: int) -> Board:
    me = ProcessIdentity.of(os.getpid())
    return Board(
        id=number, pid=me.pid, birth=me.birth, host=me.host, url=f"http://localhost:{number}/",
        experiments=list(experiments), trials=[], logdir="", started_at=0.0,
    )  # fmt: skip


def test_the_tensorboard_that_runs_is_the_answer_and_else_one_that_ends_with_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []

    def start(experiments: list[int], trials: list[int], *, parent: int) -> Board:
        started.append((experiments, trials, parent))
        return board(9, *experiments)

    monkeypatch.setattr(boards, "check_installed", lambda: None)
    monkeypatch.setattr(boards, "start_board", start)
    monkeypatch.setattr(boards, "running_boards", lambda: [board(1, 7, 8), board(2, 7)])
    assert board_of(7).id == 2
    assert started == []
    assert board_of(8).id == 9
    assert started == [([8], [], os.getpid())]


def test_a_slow_start_delays_no_other_experiment_and_is_not_repeated_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, running = threading.Barrier(2, timeout=600), list[Board]()

    def start(experiments: list[int], trials: list[int], *, parent: int) -> Board:
        both.wait()
        running.append(board(experiments[0], *experiments))
        return running[-1]

    monkeypatch.setattr(boards, "check_installed", lambda: None)
    monkeypatch.setattr(boards, "start_board", start)
    monkeypatch.setattr(boards, "running_boards", lambda: list(running))
    with ThreadPoolExecutor(4) as threads:
        assert [each.id for each in threads.map(board_of, [7, 7, 8, 8])] == [7, 7, 8, 8]
    assert len(running) == 2
