"""Batch inference on real gangs: every record counts once, whatever happens to the ranks."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    FirstStep,
    Progress,
    RunEnded,
    TargetReached,
)
from det_jupyter.core import read_metadata
from det_jupyter.pytorch.experimental import output_files
from tests.integration.inference_support import INFERENCE, config, outputs_of, records_in
from tests.integration.rank_support import Gang, Lab, Zygote, opened_lab
from tests.trials import Gate


def pause(gang: Gang, gate: Gate) -> Gang:
    """Ask the gang to leave when it is at the gate, and wait until it has."""
    gang.wait_until(gate.is_reached, f"it waits before batch {gate.batch}")
    gang.page.raise_signal("preempt")
    ended = gang.ended()
    assert ended.reason == "preempted", gang.output()
    assert ended.steps_completed == gang.last_checkpoint().steps_completed
    return gang


def start(
    lab: Lab,
    *,
    ranks: int = 2,
    pause_s: float = 0.0,
    after: CheckpointRef | None = None,
    gate: Gate | None = None,
) -> Gang:
    before = '        time.sleep(hparams["pause_s"])'
    source = INFERENCE if gate is None else gate.source(INFERENCE, before=before)
    return lab.start(source, config(pause_s=pause_s), ranks=ranks, checkpoint=after)


def wait_for_batch(gang: Gang, batch: int) -> None:
    gang.wait_until(
        lambda: any(p.steps_completed >= batch for p in gang.of(Progress)), f"batch {batch}"
    )


@pytest.fixture(scope="module")
def undisturbed(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """Return a gang of two ranks that has ended well."""
    with opened_lab(tmp_path_factory.mktemp("undisturbed"), zygote) as lab:
        gang = start(lab)
        gang.ended()
        yield gang


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_record_is_processed_once(lab: Lab, undisturbed: Gang, ranks: int) -> None:
    gang = undisturbed if ranks == 2 else start(lab, ranks=ranks, pause_s=0.0)
    ended = gang.ended() if gang is not undisturbed else gang.of(RunEnded)[-1]
    assert (ended.reason, ended.steps_completed) == ("completed", 34)
    assert records_in(outputs_of(gang)) == list(range(100))
    (validation,) = gang.validations()
    assert validation.steps_completed == 34
    assert validation.metrics["count"] == 100
    assert validation.metrics["mean"] == pytest.approx(4950 / 7)
    assert validation.metrics["order"] == list(range(100))
    finished = [f for f in output_files(outputs_of(gang)) if f.name == "finished.txt"]
    assert [f.parent.name for f in finished] == [f"rank_{rank}" for rank in range(ranks)]


def test_the_run_tells_how_far_it_is(undisturbed: Gang) -> None:
    gang = undisturbed
    fractions = [record.fraction for record in gang.of(Progress)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert len(gang.of(FirstStep)) == 1
    assert gang.of(TargetReached)[0].steps_completed == 34
    steps = [record.steps_completed for record in gang.of(CheckpointSaved)]
    assert steps == [4, 8, 12, 16, 20, 24, 28, 32, 34]  # every two rounds of two ranks


def test_a_checkpoint_has_the_parts_of_those_before(lab: Lab) -> None:
    gang = lab.start(INFERENCE, config(records=12, interval=1), ranks=2)
    gang.ended()
    first, last = gang.of(CheckpointSaved)
    assert records_in(last) == list(range(12))
    assert records_in(first) == list(range(6))
    parts = [file.parent.parent.name for file in output_files(last)]
    assert parts == ["part-00000000-00000001"] * 2 + ["part-00000002-00000003"] * 4
    ours = read_metadata(Path(last.path))["batch_inference"]
    (stretch,) = ours.pop("outputs")
    assert (stretch["first"], stretch["stop"]) == (0, 4)
    assert ours == {
        "version": 1, "done": 4, "total": 4, "batch_size": 3, "records": 12, "sources": [],
    }  # fmt: skip


def test_two_runs_from_one_checkpoint_do_not_touch_each_other(lab: Lab, tmp_path: Path) -> None:
    gate = Gate(tmp_path, 6)
    common = pause(start(lab, gate=gate), gate).last_checkpoint()
    before = records_in(common)
    ends = [start(lab, ranks=ranks, after=common) for ranks in (1, 2)]
    for gang in ends:
        gang.ended()
        assert records_in(outputs_of(gang)) == list(range(100))
    assert records_in(common) == before


def test_outputs_that_no_checkpoint_needs_go_when_the_next_run_begins(lab: Lab) -> None:
    gang = start(lab)
    gang.ended()
    root = outputs_of(gang).parent
    (folder,) = root.glob(".outputs-*")
    for saved in gang.of(CheckpointSaved):
        shutil.rmtree(saved.path)
    other = start(lab)
    other.ended()
    assert not folder.exists()
    assert records_in(outputs_of(other)) == list(range(100))


def test_a_paused_run_goes_on_and_ends_like_an_undisturbed_one(
    lab: Lab, undisturbed: Gang, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 6)
    first = pause(start(lab, gate=gate), gate)
    gate = Gate(tmp_path, first.last_checkpoint().steps_completed + 6)
    second = pause(start(lab, after=first.last_checkpoint(), gate=gate), gate)
    third = start(lab, after=second.last_checkpoint())
    assert third.ended().reason == "completed"
    assert records_in(outputs_of(third)) == list(range(100))
    assert third.validations()[-1].metrics == undisturbed.validations()[-1].metrics
    assert not first.validations()


def test_a_run_that_is_resumed_at_its_end_reports_again_and_processes_nothing(
    lab: Lab, undisturbed: Gang
) -> None:
    again = start(lab, after=undisturbed.last_checkpoint())
    assert again.ended().reason == "completed"
    assert again.of(CheckpointSaved) == []
    assert again.validations()[-1].metrics == undisturbed.validations()[-1].metrics


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_any_moment_and_other_numbers_of_ranks_lose_and_repeat_nothing(
    lab: Lab, seed: int
) -> None:
    chance = random.Random(seed)
    latest: CheckpointRef | None = None
    for _ in range(chance.randint(2, 4)):
        gang = start(lab, ranks=chance.randint(1, 3), pause_s=0.005, after=latest)
        begun = latest.steps_completed if latest else 0
        wait_for_batch(gang, min(34, begun + chance.randint(1, 6)))
        time.sleep(chance.uniform(0, 0.03))
        gang.kill()
        gang.wait_for_all()
        if gang.of(CheckpointSaved):
            latest = gang.last_checkpoint()
            expected = range(min(100, 3 * latest.steps_completed))
            assert records_in(latest) == list(expected)
        if latest is not None and latest.steps_completed == 34:
            break
    last = start(lab, ranks=chance.randint(1, 3), after=latest)
    assert last.ended().reason == "completed"
    final = last.last_checkpoint() if last.of(CheckpointSaved) else latest
    assert records_in(final) == list(range(100))
    metrics = last.validations()[-1].metrics
    assert metrics["count"] == 100
    assert metrics["mean"] == pytest.approx(4950 / 7)
    assert sorted(metrics["order"]) == list(range(100))


def test_a_rank_that_dies_takes_nothing_of_its_interval_along(lab: Lab) -> None:
    source = (
        INFERENCE
        + """
def infer_or_die():
    hparams.update(core.init().info.hparams)
    import os, signal
    class Dying(Tracing):
        def process_batch(self, batch, batch_idx):
            super().process_batch(batch, batch_idx)
            if batch_idx == 14:
                os.kill(os.getpid(), signal.SIGKILL)
    torch_batch_process(Dying, list(range(100)), batch_size=3, checkpoint_interval=3)
"""
    )
    gang = lab.start(source, config() | {"entrypoint": "infer_or_die"}, ranks=2)
    assert -9 in gang.wait()
    latest = gang.last_checkpoint()
    assert latest.steps_completed == 12
    assert records_in(latest) == list(range(36))
    last = start(lab, after=latest)
    last.ended()
    assert records_in(outputs_of(last)) == list(range(100))
    root = Path(latest.path).parent
    assert list(root.glob(".part-*")) == []  # nothing is left of what was killed


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_chief_that_dies_while_it_saves_leaves_the_older_checkpoint(
    lab: Lab, moment: str
) -> None:
    source = (
        INFERENCE
        + f"""
def infer_and_die():
    import os, signal
    from det_jupyter.storage.directory import DirectoryDraft
    commit, saved = DirectoryDraft.commit, []
    def dying(draft):
        saved.append(draft)
        if len(saved) == 3 and "{moment}" == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(draft)
        if len(saved) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    DirectoryDraft.commit = dying
    infer()
"""
    )
    gang = lab.start(source, config() | {"entrypoint": "infer_and_die"}, ranks=2)
    assert -9 in gang.wait()
    latest = gang.last_checkpoint()
    assert latest.steps_completed == 8
    assert records_in(latest) == list(range(24))
    last = start(lab, after=latest)
    last.ended()
    assert records_in(outputs_of(last)) == list(range(100))
    assert last.validations()[-1].metrics["order"] == list(range(100))


def test_no_more_batches_than_asked(lab: Lab) -> None:
    source = (
        INFERENCE
        + """
def infer_some():
    hparams.update(core.init().info.hparams)
    torch_batch_process(Tracing, list(range(100)), batch_size=3, max_batches=5)
"""
    )
    gang = lab.start(source, config() | {"entrypoint": "infer_some"}, ranks=2)
    assert gang.ended().steps_completed == 5
    assert records_in(outputs_of(gang)) == list(range(15))


def test_fewer_batches_than_ranks(lab: Lab) -> None:
    gang = lab.start(INFERENCE, config(records=4), ranks=3)
    assert gang.ended().steps_completed == 2
    assert records_in(outputs_of(gang)) == [0, 1, 2, 3]
    assert gang.validations()[-1].metrics["order"] == [0, 1, 2, 3]


def test_what_cannot_be_divided_is_refused_for_good(lab: Lab) -> None:
    source = (
        INFERENCE
        + """
def infer_wrongly():
    torch_batch_process(
        Counted, (n for n in range(9)), batch_size=0, dataloader_kwargs={"shuffle": True}
    )
"""
    )
    gang = lab.start(source, config() | {"entrypoint": "infer_wrongly"}, ranks=1)
    assert gang.wait() == [1]
    (failure,) = gang.failures()
    assert failure.final
    problems = [
        "batch_processor_cls: got Counted",
        "batch_size: got 0",
        "dataset: got a generator without __len__",
        "['shuffle']: got True",
    ]
    for problem in problems:
        assert problem in failure.traceback


def test_a_second_inference_in_one_experiment_is_refused(lab: Lab) -> None:
    source = (
        INFERENCE
        + """
def infer_twice():
    infer()
    infer()
"""
    )
    gang = lab.start(source, config(records=4) | {"entrypoint": "infer_twice"}, ranks=1)
    assert gang.wait() == [1]
    assert "has called it already" in gang.failures()[0].error


def test_a_checkpoint_of_other_batches_is_refused(lab: Lab, undisturbed: Gang) -> None:
    before = undisturbed.last_checkpoint()
    other = lab.start(INFERENCE, config(records=41), ranks=1, checkpoint=before)
    assert other.wait() == [1]
    assert "it is of records 100, now it is 41" in other.failures()[0].error
