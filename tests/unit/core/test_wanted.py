"""Checkpoints that are not on this computer yet are asked for, and waited for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter import core
from det_jupyter.core import checkpoint, wanted
from det_jupyter.core.wanted import await_shares, fetch
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import CheckpointStorage, open_storage, open_storage_of_ranks

Waiting = Callable[[Callable[[int], object]], None]
DAY_S = 24 * 3600.0


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """Return a function that sets what happens each time that something is waited for."""

    def set_clock(happens: Callable[[int], object]) -> None:
        waits: list[float] = []

        def sleep(_: float) -> None:
            waits.append(DAY_S / 4)
            happens(len(waits))

        clock = SimpleNamespace(monotonic=lambda: sum(waits), monotonic_ns=lambda: 17, sleep=sleep)
        monkeypatch.setattr(wanted, "time", clock)

    return set_clock


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_checkpoint_that_the_agent_has_fetched_is_there(
    tmp_path: Path, waiting: Waiting, is_saved: bool
) -> None:
    asked: list[Any] = []

    def answer(number: int) -> None:
        if number == 2:
            [request] = tmp_path.glob("*.json")
            asked.append(json.loads(request.read_text()))
            request.with_suffix(".done").write_text("")

    waiting(answer)
    fetch(tmp_path, "abc", is_saved=is_saved)
    assert asked == [{"uuid": "abc", "is_saved": is_saved}]
    assert list(tmp_path.glob("*.done")) == []


def test_one_that_cannot_be_fetched_is_told_with_the_reason(
    tmp_path: Path, waiting: Waiting
) -> None:
    def answer(number: int) -> None:
        next(tmp_path.glob("*.json")).with_suffix(".done").write_text("the disk is full")

    waiting(answer)
    with pytest.raises(CheckpointError, match=r"abc is not on this computer.*: the disk is full"):
        fetch(tmp_path, "abc", is_saved=False)


def test_an_agent_that_does_not_answer_within_a_day_is_not_waited_for(
    tmp_path: Path, waiting: Waiting
) -> None:
    waits: list[int] = []
    waiting(waits.append)
    with pytest.raises(CheckpointError, match="abc: the agent has not fetched it within a day"):
        fetch(tmp_path, "abc", is_saved=False)
    assert waits == [1, 2, 3, 4]


@pytest.mark.parametrize(("comes_at", "comes"), [(0, True), (3, True), (9, False)])
def test_shares_of_several_computers_are_waited_for_for_a_day(
    waiting: Waiting, comes_at: int, comes: bool
) -> None:
    waits: list[int] = []
    waiting(waits.append)
    files = SimpleNamespace(files=lambda uuid: {"w": 1} if len(waits) >= comes_at else {})
    storage = cast(CheckpointStorage, files)
    if comes:
        await_shares(storage, "abc")
        assert len(waits) == comes_at
    else:
        with pytest.raises(CheckpointError, match="have not uploaded all files of it within a da"):
            await_shares(storage, "abc")


@pytest.mark.parametrize(("is_here", "is_agents"), [(True, True), (False, True), (False, False)])
def test_a_checkpoint_is_fetched_before_it_is_read_if_it_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool, is_agents: bool
) -> None:
    master, here, folder = (tmp_path / name for name in ("master", "here", "wanted"))
    if is_agents:
        folder.mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "weights").write_text("1")
    saving = core.init(checkpoint_storage=here if is_here else master).checkpoint
    uuid = saving.upload(tmp_path / "state", {"steps_completed": 1})
    asked: list[Any] = []

    def copy(wanted: Path, uuid: str, *, is_saved: bool) -> None:
        asked.append((wanted, uuid, is_saved))
        shutil.copytree(master / uuid, here / uuid)

    monkeypatch.setattr(checkpoint, "fetch", copy)
    storage = open_storage(str(here), tmp_path)
    reading = core.CheckpointContext(
        storage, core.RecordList(), core.DistributedContext(), {}, wanted=folder
    )
    if is_here or is_agents:
        with reading.restore_path(uuid) as path:
            assert (path / "weights").read_text() == "1"
    else:
        with pytest.raises(CheckpointError), reading.restore_path(uuid):
            pass
    assert asked == [(folder, uuid, False)] * (is_agents and not is_here)


@pytest.mark.parametrize("is_uploaded", [True, False])
def test_a_checkpoint_of_which_there_is_no_copy_here_is_deleted_where_it_was_uploaded_to(
    tmp_path: Path, is_uploaded: bool
) -> None:
    if is_uploaded:
        (tmp_path / "wanted").mkdir()
    sink = core.RecordList()
    context = core.CheckpointContext(
        open_storage_of_ranks("s3://models", tmp_path),
        sink,
        core.DistributedContext(),
        {},
        wanted=tmp_path / "wanted",
    )
    context.delete("abc")
    assert [record.uuid for record in sink.records] == ["abc"] * is_uploaded  # type: ignore[union-attr]  # of a deletion
    assert context.location == str(tmp_path / "copies")
