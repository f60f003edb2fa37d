"""Scripts in an experiment: they find their run by their environment, and report to it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.config import parse_config
from det_jupyter.contract.host.paths import HOME_VARIABLE
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import Change, ChangeOrder
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import FirstStep, MetricsReported, RankFailure, RunEnded
from det_jupyter.core import managed
from det_jupyter.core.info import TrialInfo, read_run
from det_jupyter.core.journal import Journal
from det_jupyter.errors import ConfigError, LaunchError
from tests.unit.core.run_folder import CONFIG, make_run, records_of, variables


class Runs:
    def __init__(self, home: Path, environment: pytest.MonkeyPatch) -> None:
        self.home = home
        self._environment = environment

    def begin(self, **changes: Any) -> RunDir:
        """Let this process be one of a run."""
        folder = make_run(self.home, **changes)
        for name, value in variables(folder, self.home).items():
            self._environment.setenv(name, value)
        return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    for name in ("WORLD_SIZE", "DET_AGENT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield Runs(tmp_path, monkeypatch)
    core.set_current(None)


class Second(core.DistributedContext):
    """The second of two ranks, as far as a script can see."""

    def __init__(self) -> None:
        super().__init__()
        self.rank, self.size = 1, 2


def test_a_script_reports_to_its_run(runs: Runs) -> None:
    folder = runs.begin()
    with core.init() as context:
        assert context.info is not None
        context.train.report_validation_metrics(4, {"accuracy": 0.5})
        assert not context.preempt.should_preempt()
        page = ControlPage(folder.control)
        page.raise_signal("preempt")
        assert context.preempt.should_preempt(auto_ack=False)
        assert not page.is_acknowledged()
        assert page.saving_since() is None
        assert context.preempt.should_preempt()
        assert page.is_acknowledged()
        assert page.saving_since() is not None
        assert page.batch_of(0) == 4
        assert context.train.get_tensorboard_path() == runs.home / "tensorboard" / "3" / "7"
    first, metrics = records_of(folder, 0)
    assert isinstance(first, FirstStep)
    assert first.steps_completed == 4
    assert isinstance(metrics, MetricsReported)
    assert metrics.metrics == {"accuracy": 0.5}


def test_a_script_asks_whether_to_leave_only_within_its_block(runs: Runs) -> None:
    runs.begin()
    context = core.init()
    with pytest.raises(RuntimeError, match="the `with` block of this context has not begun"):
        context.preempt.should_preempt()
    with context:
        assert not context.preempt.should_preempt()


@pytest.mark.parametrize(("make", "num"), [(core.DistributedContext, 1), (Second, 0)])
def test_the_chief_alone_reads_what_its_script_writes_for_tensorboard(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, make: type[core.DistributedContext], num: int
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(managed, "read_written_events", lambda *given: read.append(given))
    runs.begin(num_slots=2)
    with core.init(distributed=make()):
        assert len(read) == num


@pytest.mark.parametrize(("profiling", "num"), [({}, 1), ({"profiling": {"enabled": False}}, 0)])
def test_a_loop_is_timed_once_and_not_if_the_configuration_says_so(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, profiling: dict[str, Any], num: int
) -> None:
    watched: list[Any] = []
    monkeypatch.setattr(managed, "watch", watched.append)
    monkeypatch.setattr(managed, "_loop", None)
    config = parse_config(CONFIG | profiling, default_seed=11).to_document()
    run = runs.begin(config=config)
    for _ in range(2):
        found = TrialInfo.from_environment()
        assert found is not None
        managed.time_loop(found, 0, 1, Journal.of_run(run, 0))
    assert len(watched) == num


def test_a_process_parses_the_configuration_of_its_run_once(runs: Runs, parses: list[Any]) -> None:
    runs.begin()
    parses.clear()
    for _ in range(2):
        info = core.get_cluster_info()
    with core.init() as context:
        assert context.info is not None
        assert info is not None
        assert context.info.config is info.config
    assert len(parses) == 1


def test_a_script_knows_its_trial_before_it_begins(runs: Runs) -> None:
    runs.begin(num_slots=3, agent_ids=["left", "left", "right"])
    info = core.get_cluster_info()
    assert info is not None
    assert (info.trial.trial_id, info.trial.experiment_id, info.trial.trial_seed) == (7, 3, 11)
    assert info.hparams == info.trial.hparams == {"rate": 0.5}
    assert info.latest_checkpoint is None
    assert info.trial._config["searcher"]["metric"] == "accuracy"
    assert (info.allocation_id, info.task_id, info.task_type) == ("7.1", "7", "TRIAL")
    assert len(info.container_addrs) == 2
    assert info.container_slot_counts == [2, 1]
    assert (info.container_rank, info.agent_id, info.slot_ids) == (0, "left", [0, 1])
    assert (info.gpu_uuids, info.user_data) == ([], {})
    assert info.cluster_id
    assert (info.master_url, info.session_token, info.master_cert_file) == ("", "", None)


def test_each_agent_has_its_own_slots(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.begin(num_slots=3, agent_ids=["left", "left", "right"])
    monkeypatch.setenv("DET_AGENT_ID", "right")
    info = core.get_cluster_info()
    assert info is not None
    assert (info.container_rank, info.agent_id, info.slot_ids) == (1, "right", [2])


@pytest.mark.parametrize(("rank", "expected"), [(None, 0), (0, 0), (1, 0), (2, 1), (5, 1)])
def test_a_rank_is_beside_the_slot_of_its_number(
    runs: Runs, rank: int | None, expected: int
) -> None:
    folder = runs.begin(num_slots=3, agent_ids=["left", "left", "right"])
    info = read_run(str(folder.path), str(runs.home))
    assert (info if rank is None else info.at(rank, 0)).container_rank == expected


@pytest.mark.parametrize(
    ("saves", "leaves", "fails", "is_told"),
    [
        (False, True, False, True),
        (True, True, False, False),
        (False, False, False, False),
        (False, True, True, False),  # its error says more
    ],
)
def test_a_script_that_leaves_without_a_checkpoint_is_told(
    runs: Runs,
    saves: bool,
    leaves: bool,
    fails: bool,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs.begin()

    def script() -> None:
        with core.init() as context:
            if leaves:
                context.preempt.acknowledge_preemption_signal()
            if saves:
                with context.checkpoint.store_path({"steps_completed": 1}) as (folder, _):
                    (folder / "state").write_text("1")
            with context:
                pass
            assert caplog.messages == [], "the outer block has not ended"
            if fails:
                raise KeyError("data")

    with pytest.raises(KeyError) if fails else nullcontext():
        script()
    told = [text for text in caplog.messages if "leaves without a checkpoint" in text]
    assert len(told) == is_told


def test_a_worker_has_the_journal_of_its_rank(runs: Runs) -> None:
    folder = runs.begin(num_slots=2)
    with core.init(distributed=Second()) as context:
        with pytest.raises(RuntimeError, match="only the chief"):
            context.train.report_metrics("x", 1, {"a": 1.0})
        context.preempt.acknowledge_preemption_signal()
        folder_of_rank = context.train.get_tensorboard_path()
    assert records_of(folder, 1) == []
    assert not folder.journal(0).exists()
    assert folder_of_rank.name == "rank_1"
    assert ControlPage(folder.control).is_acknowledged()


def test_a_worker_beyond_the_slots_has_the_journal_of_the_last_one(runs: Runs) -> None:
    folder = runs.begin(num_slots=2)
    fourth = Second()
    fourth.rank, fourth.size = 3, 4
    with core.init(distributed=fourth) as context:
        context.profiler.count("tokens")
    assert [record.kind for record in records_of(folder, 1)] == ["step_times"]
    assert sorted(file.name for file in folder.path.glob("journal*")) == ["journal-1"]


def test_the_chief_alone_takes_targets_and_orders_from_its_run(runs: Runs) -> None:
    planned = ChangeOrder(id=4, change=Change(lr=0.5))
    folder = runs.begin(num_slots=2, orders=[planned])
    page = ControlPage(folder.control)
    page.extend(20, is_last=True)
    page.announce_orders(4)
    chief = core.init(distributed=core.DistributedContext())
    assert chief.orders is not None
    assert chief.orders.planned == [planned]
    assert not chief.orders.are_waiting()
    page.announce_orders(5)
    assert chief.orders.are_waiting()
    assert chief.searcher.was_extended()
    assert chief.searcher.target.amount == 20
    core.set_current(None)
    second = core.init(distributed=Second())
    assert second.orders is not None
    assert second.orders.planned == [planned]
    assert not second.orders.are_waiting()
    assert not second.searcher.was_extended()


def test_one_of_several_workers_has_to_say_which(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin(num_slots=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"one of several .* 2 slots .*from_torch_distributed"):
        core.init()
    monkeypatch.delenv("WORLD_SIZE")
    first = core.init()  # it may use both slots by itself
    core.set_current(None)
    with pytest.raises(ConfigError, match="both would be the chief"):
        core.init()
    assert first.info is not None


def test_one_process_of_several_computers_has_to_say_which(runs: Runs) -> None:
    runs.begin(num_slots=2, agent_ids=["left", "right"])
    with pytest.raises(ConfigError, match=r"2 slots of this trial \(its run has 2 processes\)"):
        core.init()


def test_a_second_call_is_told_and_gives_the_same_context(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    runs.begin()
    with core.init() as context:
        assert caplog.text == ""
        assert core.init() is context
        assert "block of another; it returns the same context" in caplog.text
        with pytest.raises(ConfigError, match="rank 1 of 2, but this is rank 0 of 1"):
            core.init(distributed=Second())
        with pytest.raises(ConfigError, match="got checkpoint_storage, but"):
            core.init(checkpoint_storage="x", length=3)


def test_after_its_block_a_context_is_closed_until_the_next_one(runs: Runs) -> None:
    runs.begin()
    with core.init() as context:
        context.train.report_progress(0.1)
    with pytest.raises(RuntimeError, match=r"train.report_progress: this context is closed"):
        context.train.report_progress(0.2)
    with core.init() as again:
        assert again is context
        again.train.report_progress(0.2)


def test_a_context_that_is_never_closed_is_told(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    folder = runs.begin()
    context = core.init()
    context.profiler.count("tokens", 3)
    with caplog.at_level(logging.WARNING):
        core.end_script()
    assert "ended without closing its context" in caplog.text
    assert [record.kind for record in records_of(folder, 0)] == ["step_times"]


def test_a_run_that_is_over_is_told(runs: Runs) -> None:
    folder = runs.begin()
    folder.plan.unlink()
    with pytest.raises(LaunchError, match="that run is over"):
        core.init()


def test_a_rank_gives_its_journal_and_device_to_its_script(runs: Runs) -> None:
    folder = make_run(runs.home)
    info = read_run(str(folder.path), str(runs.home)).at(0, 0)
    steps: list[int] = []
    journal = Journal(folder.journal(0))
    core.set_process(core.Process(info=info, journal=journal, on_steps=steps.append))
    try:
        assert core.get_cluster_info() is info
        with core.init() as context:
            context.train.report_metrics("x", 5, {"a": 1.0})
    finally:
        core.set_process(None)
    assert steps == [5]
    kinds = [record.kind for record in records_of(folder, 0)]
    assert kinds == ["metrics", "notice"]  # that the searcher's metric was never reported


FAILING = """
import sys
from det_jupyter import core

class Ranks(core.DistributedContext):
    def __init__(self):
        super().__init__()
        self.rank, self.size = 1, 2

with core.init(distributed=Ranks()):
    raise {error}
"""


def test_the_uncaught_error_of_a_worker_is_journaled(runs: Runs) -> None:
    folder = runs.begin(num_slots=2)
    folder.work.mkdir()
    for name, error in {"a.py": "ValueError('shapes differ')", "b.py": "InvalidHP('no')"}.items():
        script = folder.work / name
        script.write_text(
            "from det_jupyter.errors import InvalidHP\n" + FAILING.format(error=error)
        )
        ended = subprocess.run(
            [sys.executable, str(script)], env={**os.environ}, capture_output=True, text=True
        )
        assert ended.returncode == 1
        assert error.partition("(")[0] in ended.stderr  # as without us
    failure, end = records_of(folder, 1)
    assert isinstance(failure, RankFailure)
    assert (failure.rank, failure.error) == (1, "ValueError: shapes differ")
    assert failure.where == "a.py, line 12, in <module>"
    assert "raise ValueError" in failure.traceback
    assert not failure.final  # another rank than the chief may have trained
    assert isinstance(end, RunEnded)
    assert (end.reason, end.message) == ("invalid_hp", "no")
