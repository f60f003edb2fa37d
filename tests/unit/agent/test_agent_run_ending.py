"""What the agent writes of the end of a run of programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from det_jupyter.agent.runs.ending import write_end
from det_jupyter.agent.runs.run import new_run
from det_jupyter.agent.runs.streams import MAX_RECORD_BYTES
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import CheckpointRef, GangExited
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
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import LaunchError
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
        run.fill_workplace()
