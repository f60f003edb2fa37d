"""The watch of a gang lasts as long as the gang, so that what it reports is taken back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.hangs import gang_watch, looking
from det_jupyter.agent.hangs.gang_watch import GangWatch
from det_jupyter.agent.hangs.process_facts import state_of
from det_jupyter.agent.hangs.stacks import Frame
from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RUN_VARIABLE
from det_jupyter.contract.messages import SlotView
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.evidence_page import EvidencePage
from det_jupyter.contract.run.journal import RanksStalled, parse_line
from tests.processes import wait_until
from tests.unit.agent.hangs.watched_ranks import (
    BARRIER,
    answering,
    dumped,
    make_run,
    recorded,
    sleeping,
)
from tests.waiting import wait_until_executed

AFTER_S = 6.0
LOADER = Frame("/p/torch/utils/data/dataloader.py", 9, "_next_data")
PROGRAM = "python3 -m torch.distributed.run train.py"


def test_a_gang_that_waits_for_room_is_not_judged_and_its_watch_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = SimpleNamespace(id="1.1.1", waits_for_room=False)
    opened: list[str] = []
    closed: list[str] = []
    steps: list[bool] = []

    def open_watch(run: Any) -> Any:
        opened.append(run.id)
        return SimpleNamespace(close=lambda: closed.append(run.id))

    def step(watch: Any, gang: Any) -> bool:
        steps.append(run.waits_for_room)
        return False

    monkeypatch.setattr(gang_watch, "_open", open_watch)
    monkeypatch.setattr(gang_watch, "_step", step)
    rounds = iter([False, True, True, False, None, None])

    def living() -> list[Any]:
        waits = next(rounds, None)
        if waits is None:
            return []
        run.waits_for_room = waits
        return [SimpleNamespace(run=run)]

    async def watch() -> None:
        monkeypatch.setattr(gang_watch, "INTERVAL_S", 0.0)
        task = asyncio.create_task(gang_watch.watch_gangs(living, lambda: None))
        while not closed:
            await asyncio.sleep(0.02)
        task.cancel()

    asyncio.run(watch())
    assert steps == [False, False]
    assert opened == closed == ["1.1.1"]


class Ranks:
    """Two ranks that sleep, their pages, and the watch of their gang; seconds pass by hand."""

    def __init__(self, folder: Path, pids: list[int], **plan: Any) -> None:
        config = {"hang": {"after_s": AFTER_S, "action": "alert"}}
        self.run = make_run(folder, **{"config": config, **plan})
        self.control = ControlPage(self.run.dir.control)
        self.page = EvidencePage(self.run.dir.evidence)
        self.gang = LivingGang(self.run, dict(enumerate(pids)))
        self.watch = GangWatch(self.run, AFTER_S)
        self.theirs = Frame(f"{self.run.plan.cwd}/train.py", 3, "train_batch")
        self.now = 1000.0
        self.held: set[int] = set()  # ranks whose interpreters cannot run

    def begin_batch(self, number: int) -> None:
        """Let both ranks begin a batch."""
        for rank in (0, 1):
            self.control.batch_writer(rank)(number + 1)

    def stands(self, most_s: int = 15) -> int | None:
        """Let seconds pass until a report is written; return after how many, None: none was."""
        for second in range(most_s):
            self.now += 1.0
            for rank in (0, 1):
                beats = self.page.get(rank, "beats")
                self.page.set(rank, "beats", beats + bool(beats and rank not in self.held))
            if self.watch.step(self.gang, self.now):
                return second
        return None

    def reports(self) -> list[RanksStalled]:
        """Return what is in the journal of rank 0."""
        lines = self.run.dir.journal(0).read_text().splitlines()
        found = [parse_line(line) for line in lines]
        assert all(isinstance(record, RanksStalled) for record in found)
        return found  # type: ignore[return-value]

    def close(self) -> None:
        """Unmap all pages."""
        self.control.close()
        self.page.close()
        self.watch.close()


@pytest.fixture
def make_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ranks]]:
    """Return what makes the ranks of a gang; their time is that of `stands`."""
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path / "kept")
    monkeypatch.setattr(looking, "spy", lambda *_: "")
    monkeypatch.setattr(looking, "_ANSWER_S", 0.01)
    made: list[Ranks] = []
    with sleeping(2) as pids:

        def make(**plan: Any) -> Ranks:
            made.append(Ranks(tmp_path, pids, **plan))
            clock = SimpleNamespace(monotonic=lambda: made[0].now, time=lambda: 5000.0)
            monkeypatch.setattr(gang_watch, "time", clock)
            return made[0]

        yield make
        for ranks in made:
            ranks.close()


def test_ranks_that_stand_still_are_reported_once_and_taken_back_with_the_next_batch(
    make_ranks: Callable[..., Ranks], caplog: pytest.LogCaptureFixture
) -> None:
    ranks = make_ranks()
    for batch in (118, 119):
        ranks.begin_batch(batch)
        assert ranks.stands(1) is None
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER, ranks.theirs]))
    ranks.run.dir.stacks(1).write_text(dumped([ranks.theirs]))
    ranks.page.set(0, "entered", 7)
    ranks.page.set_collective(0, b"barrier of 2 ranks")
    with answering(ranks.page, 0, 1):
        assert ranks.stands() is not None
        assert ranks.stands(20) is None
        ranks.begin_batch(120)
        assert ranks.stands(1) == 0
        assert ranks.stands(2) is None
    stalled, over = ranks.reports()
    assert (over.ranks, over.at) == ([], 5000.0)
    assert 5000.0 - 10 <= stalled.since <= 5000.0 - AFTER_S
    first, second = stalled.ranks
    pids = ranks.gang.pids
    assert (first.rank, first.kind, first.pid, first.batch) == (0, "waits", pids[0], 119)
    assert (first.collective, first.number, first.place) == (
        "barrier of 2 ranks", 7, "train.py, line 3",
    )  # fmt: skip
    assert first.begun == {7: "barrier of 2 ranks"}
    assert "collective 7 of its Python code: barrier of 2 ranks" in first.evidence
    assert (second.rank, second.kind, second.pid, second.batch) == (1, "still", pids[1], 119)
    assert (second.collective, second.number, second.begun) == ("", None, {})
    assert (second.call, second.child) == ("train_batch", "")
    assert second.stack == f'File "{ranks.theirs.file}", line 3, in train_batch'
    told = f"allocation={ranks.run.id} stalled: "
    assert [text for text in caplog.messages if text.startswith("allocation=")] == [
        f"{told}0 waits {first.call}, 1 still train_batch", f"{told}no longer",
    ]  # fmt: skip


def test_a_collective_is_that_of_the_flight_recorder_if_there_is_one(
    make_ranks: Callable[..., Ranks],
) -> None:
    ranks = make_ranks()
    ranks.begin_batch(5)
    ranks.page.set(0, "entered", 7)
    ranks.page.set_collective(0, b"barrier of 2 ranks")
    for rank, number in enumerate((9, 8)):
        ranks.run.dir.stacks(rank).write_text(dumped([BARRIER, ranks.theirs]))
        ranks.run.dir.recorder(rank).write_bytes(recorded(number, retired=rank == 1))
    with answering(ranks.page, 0, 1):
        assert ranks.stands(30) is not None
    first, second = ranks.reports()[0].ranks
    assert (first.collective, first.number) == ("all_reduce [4] float32", 9)
    assert first.begun == {9: "all_reduce [4] float32"}
    assert (second.collective, second.number) == ("barrier", None)
    assert second.begun == {8: "all_reduce [4] float32"}


def test_a_rank_that_is_stopped_is_not_looked_at(make_ranks: Callable[..., Ranks]) -> None:
    ranks = make_ranks()
    ranks.begin_batch(5)
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER, ranks.theirs]))
    pid = ranks.gang.pids[1]
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    wait_until(lambda: state_of(pid) == "T", "it is stopped")
    with answering(ranks.page, 0, 1):
        assert ranks.stands(30) is not None
    assert (ranks.page.get(0, "wanted") > 0, ranks.page.get(1, "wanted")) == (True, 0)
    assert [rank.kind for rank in ranks.reports()[0].ranks] == ["waits", "stopped"]


def test_a_rank_whose_data_loader_hangs_tells_where(
    make_ranks: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = make_ranks()
    ranks.begin_batch(5)
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER, ranks.theirs]))
    ranks.run.dir.stacks(1).write_text(dumped([LOADER, ranks.theirs]))
    asked: list[tuple[int, tuple[int, ...]]] = []

    def child_in(_: Any, rank: int, children: tuple[int, ...], __: Any) -> str:
        asked.append((rank, tuple(children)))
        return "(process 7) is in `read` (data.py, line 1)"

    monkeypatch.setattr(looking.Looker, "child_in", child_in)
    with answering(ranks.page, 0, 1):
        assert ranks.stands(30) is not None
    told = [rank.child for rank in ranks.reports()[0].ranks]
    assert told == ["", "(process 7) is in `read` (data.py, line 1)"]
    assert asked == [(1, ())]


@pytest.mark.parametrize("action", ["alert", "dump"])
def test_files_are_kept_if_the_user_wants_them(
    make_ranks: Callable[..., Ranks], tmp_path: Path, action: str
) -> None:
    config = {"hang": {"after_s": AFTER_S, "action": action}}
    ranks = make_ranks(config=config)
    ranks.begin_batch(5)
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER, ranks.theirs]))
    with answering(ranks.page, 0, 1):
        assert ranks.stands(30) is not None
    folder = tmp_path / "kept" / "hangs" / "1.1.1"
    assert folder.exists() is (action == "dump")
    first, second = ranks.reports()[0].ranks
    note = f"files are kept in {folder}"
    assert (note in first.evidence, note in second.evidence) == (action == "dump", False)


def test_the_process_that_says_that_it_is_the_rank_is_watched(
    make_ranks: Callable[..., Ranks],
) -> None:
    ranks = make_ranks()
    ranks.begin_batch(5)
    second = ranks.gang.pids[1]
    ranks.page.set(0, "pid", second)
    ranks.page.set(1, "pid", 2**22 + 1)  # it has ended
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER]))
    with answering(ranks.page, 0, 1):
        assert ranks.stands(30) is not None
    assert [rank.pid for rank in ranks.reports()[0].ranks] == [second, second]
    alone = LivingGang(ranks.run, {0: ranks.gang.pids[0]})
    assert not ranks.watch.step(alone, ranks.now + 1)  # rank 1 is not known


def test_ranks_that_a_launcher_has_started_are_found_by_their_variables(
    make_ranks: Callable[..., Ranks],
) -> None:
    ranks = make_ranks(config={"hang": {"after_s": AFTER_S}, "entrypoint": PROGRAM})
    ranks.begin_batch(5)
    run = {RUN_VARIABLE: str(ranks.run.dir.path), "PATH": os.defpath}
    variables: list[dict[str, str]] = [
        {"RANK": "0", "LOCAL_RANK": "0"},
        {"RANK": "1"},  # as in a program that sets it for itself
        {"RANK": "one", "LOCAL_RANK": "1"},
        {},
    ]

    def start(own: dict[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "3600"], env={**run, **own})
        wait_until_executed(process)
        return process

    started = [start(own) for own in variables]
    try:
        assert not ranks.watch.step(ranks.gang, ranks.now)
        started.append(start({"RANK": "1", "LOCAL_RANK": "1"}))
        assert ranks.watch._processes(ranks.gang, ranks.now + 4.0) is None  # looked up just now
        found = {0: started[0].pid, 1: started[-1].pid}
        assert ranks.watch._processes(ranks.gang, ranks.now + 5.1) == found
        started[-1].kill()
        started[-1].wait()
        assert ranks.watch._processes(ranks.gang, ranks.now + 12.0) is None
    finally:
        for process in started:
            process.kill()
            process.wait()


def watching(run: AgentRun, gangs: list[LivingGang], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Watch the gangs for a few turns; return the watches that have stepped."""
    stepped: list[Any] = []

    def step(watch: GangWatch, gang: LivingGang, now: float) -> bool:
        stepped.append(watch)
        assert gang.run is run
        if run.plan.seed:
            raise [OSError("ended"), RuntimeError("a fault")][run.plan.seed - 1]
        return len(stepped) == 2

    monkeypatch.setattr(GangWatch, "step", step)
    monkeypatch.setattr(gang_watch, "INTERVAL_S", 0.0)
    told: list[int] = []
    turns = 0

    def living() -> list[LivingGang]:
        nonlocal turns
        turns += 1
        return gangs

    async def watch() -> None:
        watch = gang_watch.watch_gangs(living, lambda: told.append(len(stepped)))
        task = asyncio.create_task(watch)
        while turns < 5:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watch())
    assert told == ([2] if len(stepped) > 1 and not run.plan.seed else [])
    return stepped


@pytest.mark.parametrize(
    ("hang", "seed", "num"),
    [
        ({"after_s": 60}, 0, 4),
        ({"after_s": 60}, 1, 4),  # an error of the operating system: a rank has just ended
        ({"after_s": 60}, 2, 1),  # a fault of ours ends this watch
        ({"after_s": 0}, 0, 0),
        (None, 0, 0),
    ],
)
def test_a_gang_is_watched_if_its_configuration_says_so_until_that_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    hang: dict[str, Any] | None,
    seed: int,
    num: int,
) -> None:
    run = make_run(tmp_path, config={"hang": hang}, seed=seed)
    stepped = watching(run, [LivingGang(run, {0: 1})], monkeypatch)
    assert len(stepped) == num
    assert len(set(stepped)) == min(1, num)
    assert ("allocation=1.1.1 is not watched any more" in caplog.text) is (seed == 2)


def test_a_gang_whose_folder_the_user_has_removed_is_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, config={"hang": {"after_s": 60}})
    run.dir.control.unlink()
    assert watching(run, [LivingGang(run, {0: 1})], monkeypatch) == []


def test_a_part_of_a_gang_is_reported_in_the_journal_of_its_first_rank(
    tmp_path: Path, make_ranks: Callable[..., Ranks]
) -> None:
    ranks = make_ranks()
    ranks.watch.close()
    run = AgentRun(plan=ranks.run.plan, dir=ranks.run.dir, sockets=None, ranks=[1])
    ranks.gang = LivingGang(run, {1: ranks.gang.pids[1]})
    ranks.watch = GangWatch(run, AFTER_S)
    for batch in (118, 119):
        ranks.begin_batch(batch)
        assert ranks.stands(1) is None
    run.dir.stacks(1).write_text(dumped([ranks.theirs]))
    with answering(ranks.page, 1):
        # Sooner than a rank alone would be: those elsewhere may wait for it.
        assert (ranks.stands(30) or 0) < 10
    assert not run.dir.journal(0).exists()
    (line,) = run.dir.journal(1).read_text().splitlines()
    record = parse_line(line)
    assert isinstance(record, RanksStalled)
    assert [(rank.rank, rank.kind) for rank in record.ranks] == [(1, "still")]


def test_ranks_that_tell_no_batches_are_past_their_start_after_many_collectives(
    make_ranks: Callable[..., Ranks],
) -> None:
    ranks = make_ranks()
    for entered in (100, 200):
        ranks.page.set(0, "entered", entered)
        assert ranks.stands(1) is None
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER, ranks.theirs]))
    ranks.run.dir.stacks(1).write_text(dumped([ranks.theirs]))
    with answering(ranks.page, 0, 1):
        assert (ranks.stands(30) or 30) < 12
    assert ranks.reports()[0].ranks[0].batch is None


@pytest.mark.parametrize(
    ("takes_s", "pause_s"), [(0.0, 1.0), (0.375, 0.625), (0.75, 0.5), (9.0, 0.5)]
)
def test_gangs_are_sampled_every_second_with_a_pause_in_between(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, pause_s: float
) -> None:
    now = [100.0]

    def living() -> list[LivingGang]:
        now[0] += takes_s
        return []

    class Over(Exception):
        pass

    async def sleep(seconds: float) -> None:
        assert seconds == pause_s
        raise Over

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(gang_watch, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Over):
        asyncio.run(gang_watch.watch_gangs(living, lambda: None))


def test_a_rank_whose_interpreter_cannot_run_is_told_as_held(
    make_ranks: Callable[..., Ranks],
) -> None:
    ranks = make_ranks()
    ranks.begin_batch(118)
    assert ranks.stands(1) is None
    ranks.begin_batch(119)
    ranks.held = {1}
    ranks.page.set(1, "beats", 5)
    ranks.run.dir.stacks(0).write_text(dumped([BARRIER, ranks.theirs]))
    with answering(ranks.page, 0):
        assert ranks.stands(30) is not None
    first, second = ranks.reports()[0].ranks
    assert (first.kind, second.kind) == ("waits", "held")
    assert second.stack == ""


def test_on_cuda_the_backward_pass_of_the_main_thread_is_no_collective(
    make_ranks: Callable[..., Ranks],
) -> None:
    """Another thread computes it; with gloo the main thread does, and waits for the others."""
    slots = [SlotView(id=i, kind="cuda", index=i, name="GPU", uuid=f"GPU-{i}") for i in (0, 1)]
    ranks = make_ranks(slots=slots)
    for batch in (118, 119):
        ranks.begin_batch(batch)
        assert ranks.stands(1) is None
    backward = Frame("/p/site-packages/torch/autograd/graph.py", 865, "_engine_run_backward")
    for rank in (0, 1):
        ranks.run.dir.stacks(rank).write_text(dumped([backward, ranks.theirs]))
    with answering(ranks.page, 0, 1):
        assert (ranks.stands(80) or 0) >= 55  # as ranks that sleep by themselves
    assert [rank.kind for rank in ranks.reports()[0].ranks] == ["still", "still"]
