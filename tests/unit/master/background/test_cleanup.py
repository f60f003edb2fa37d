"""What killed programs have left behind is deleted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import Delete
from det_jupyter.errors import Conflict, DetError
from det_jupyter.master.background import cleanup
from det_jupyter.master.background.cleanup import find_abandoned, remove_dead_runs
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    first_step,
    registered,
    running,
    submitted,
)

HOUR, DAY = 3600.0, 86_400.0


def test_a_temporary_experiment_is_deleted_an_hour_after_its_end() -> None:
    world = World()
    temporary: Any = submitted(slots=1).model_copy(update={"is_temporary": True})
    world.tell(registered(), temporary, submitted(slots=1))
    for run in ("1.1.1", "2.2.1"):
        world.tell(*running(run, 1), first_step(allocation_id=run))
    experiments = world.machine.state.experiments.values()
    assert find_abandoned(experiments, world.now + 2 * HOUR) == []
    for run in ("1.1.1", "2.2.1"):
        world.tell(*completed(allocation_id=run), exited(run, {0: 0}))
    assert find_abandoned(experiments, world.now) == []
    assert find_abandoned(experiments, world.now + HOUR + 1) == [1]


@pytest.mark.parametrize("error", [Conflict("it is in use"), DetError("the disk is full")])
def test_what_cannot_be_deleted_keeps_nothing_else(
    monkeypatch: pytest.MonkeyPatch, error: DetError
) -> None:
    swept = list[Any]()
    monkeypatch.setattr(cleanup, "find_abandoned", lambda *given: [1, 2])
    for name in ("sweep", "remove_leftovers", "_sweep_alerts"):
        monkeypatch.setattr(cleanup, name, lambda *given: None)
    monkeypatch.setattr(cleanup, "remove_dead_runs", lambda *given: swept.append(given[1]))

    def refuse(request: Delete) -> None:
        swept.append(request.experiment_id)
        raise error

    async def end(_: float) -> None:
        raise asyncio.CancelledError

    runs: Any = [SimpleNamespace(capsule=None, location=None, run_keys=keys, ended_at=ended_at)
                 for keys, ended_at in ((["a", "b"], None), (["c"], 5.0), ([], None))]  # fmt: skip
    state = SimpleNamespace(experiments=dict(enumerate(runs)))
    service: Any = SimpleNamespace(
        store=SimpleNamespace(give_back=lambda: False),
        machine=SimpleNamespace(state=state),
        apply=refuse,
    )
    monkeypatch.setattr(asyncio, "sleep", end)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cleanup.clean_up(service))
    assert swept == [1, 2, {"a", "c"}]


def test_the_folder_of_a_run_that_nothing_follows_is_deleted_after_a_week(tmp_path: Path) -> None:
    """But not of a run that this master does not know: it can still be taken in."""
    for key in ("over", "running", "written", "of another master"):
        folder = tmp_path / "unmanaged" / key
        folder.mkdir(parents=True)
        (folder / "gone").symlink_to(tmp_path / "nowhere")
        for path in (folder / "journal-0", folder / "gone", folder):
            if not path.is_symlink():
                path.touch()
            os.utime(path, (8 * DAY, 8 * DAY), follow_symlinks=False)
    os.utime(tmp_path / "unmanaged" / "written" / "journal-0", (14 * DAY, 14 * DAY))
    over = {"over", "written", "a run without a folder"}
    remove_dead_runs(tmp_path, over, 15 * DAY - HOUR)
    assert len(list((tmp_path / "unmanaged").iterdir())) == 4
    remove_dead_runs(tmp_path, over, 15 * DAY + HOUR)
    left = {path.name for path in (tmp_path / "unmanaged").iterdir()}
    assert left == {"running", "written", "of another master"}
    remove_dead_runs(tmp_path / "other", over, 0.0)
