"""The Core API off the cluster: one rank, and the same checks as on it."""

from __future__ import annotations

import math
import platform
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from det_jupyter import __version__, core
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    CheckpointDeleted,
    MetricsReported,
    Progress,
    Record,
    RunEnded,
    parse_line,
    to_line,
)
from det_jupyter.core.train import BestValidation
from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.storage.directory import DirectoryStorage
from tests.problems import said


@pytest.fixture
def context(tmp_path: Path) -> core.Context:
    return core.init(checkpoint_storage=tmp_path / "checkpoints")


def records(context: core.Context) -> list[Record]:
    assert isinstance(context.sink, core.RecordList)
    return context.sink.records


def test_reports_become_records_with_plain_values(context: core.Context) -> None:
    context.train.report_validation_metrics(
        4, {"a": torch.tensor(1.5), "b": numpy.float64(2), "c": numpy.array([1, 2]), "d": math.inf}
    )
    context.train.report_metrics("inference", 5, {"x y/%": 1})
    first, second = records(context)
    assert isinstance(first, MetricsReported)
    assert (first.group, first.steps_completed) == ("validation", 4)
    assert first.metrics == {"a": 1.5, "b": 2.0, "c": [1, 2], "d": math.inf}
    assert isinstance(second, MetricsReported)
    assert (second.group, second.metrics) == ("inference", {"x y/%": 1})


def test_a_checkpoint_tells_what_it_was_made_with(context: core.Context, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    uuid = context.checkpoint.upload(tmp_path / "state", {"steps_completed": 1})
    metadata = core.read_metadata(tmp_path / "checkpoints" / uuid)
    made_with = {name: metadata[name] for name in metadata if name.endswith("_version")}
    assert made_with == {
        "det_jupyter_version": __version__,
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
    }


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_checkpoint_that_could_not_all_be_removed_is_deleted_unless_it_is_whole(
    context: core.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    (tmp_path / "state").mkdir()
    uuid = context.checkpoint.upload(tmp_path / "state", {"steps_completed": 1})
    remove = DirectoryStorage.delete

    def fail(storage: DirectoryStorage, uuid: str) -> None:
        if is_removed:
            remove(storage, uuid)
        raise CheckpointError("the disk does not answer")

    monkeypatch.setattr(DirectoryStorage, "delete", fail)
    with nullcontext() if is_removed else pytest.raises(CheckpointError, match="the disk"):
        context.checkpoint.delete(uuid)
    deleted = [each.uuid for each in records(context) if isinstance(each, CheckpointDeleted)]
    assert deleted == [uuid] * is_removed


def test_outside_of_an_experiment_there_is_no_trial_to_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with core.init(checkpoint_storage=tmp_path, length=3) as context:
        next(context.searcher.operations())
    assert caplog.messages == [
        "searcher.operations: the script ends before it has called op.report_completed for "
        "3 batches"
    ]


def test_metrics_of_batches_are_told_by_name(context: core.Context) -> None:
    context.train.report_training_metrics(
        10, {"loss": 1.5}, batch_metrics=[{"loss": 1}, {"loss": torch.tensor(2.0)}]
    )
    batches = records(context)[1]
    assert isinstance(batches, BatchMetrics)
    assert (batches.first, batches.values) == (9, {"loss": [1, 2.0]})


def test_progress_is_of_the_step_that_was_reported_last(context: core.Context) -> None:
    context.train.report_validation_metrics(4, {"a": 1})
    context.train.report_progress(0.5)
    progress = records(context)[1]
    assert isinstance(progress, Progress)
    assert (progress.fraction, progress.steps_completed) == (0.5, 4)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("report_metrics", ("a.b", 1, {}), "expected a name without dots"),
        ("report_metrics", ("", 1, {}), "expected a name without dots"),
        ("report_validation_metrics", (-1, {}), "expected 0 or more"),
        ("report_validation_metrics", (1.5, {}), "expected a whole number"),
        ("report_validation_metrics", (1, {"a": b"x"}), "metric 'a': got bytes"),
        ("report_validation_metrics", (1, {"a": [object()]}), r"metric 'a'\[0\]: got object"),
        ("report_validation_metrics", (1, {3: 1}), "got the name 3"),
        ("report_validation_metrics", (1, [1]), "got list, expected a dict"),
        ("report_progress", (2.0,), "expected a number from 0 to 1"),
        ("report_training_metrics", (2, {}, [{"a": 1}, {"b": 1}]), r"batch_metrics\[1\]"),
    ],
)
def test_what_cannot_be_reported_is_refused(
    context: core.Context, method: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(context.train, method)(*arguments)


def test_only_the_chief_reports_and_stores(tmp_path: Path) -> None:
    second = core.DistributedContext()
    second.rank = 1
    context = core.init(distributed=second, checkpoint_storage=tmp_path)
    with pytest.raises(RuntimeError, match="only the chief"):
        context.train.report_validation_metrics(1, {"a": 1})
    with pytest.raises(RuntimeError, match="only the chief"):
        context.checkpoint.upload(tmp_path, {"steps_completed": 1})


def test_alone_every_collective_is_the_value_itself() -> None:
    alone = core.DistributedContext()
    assert alone.gather("x") == alone.allgather("x") == ["x"]
    assert alone.gather_local("x") == alone.allgather_local("x") == ["x"]
    assert alone.broadcast("x") == alone.broadcast_local("x") == "x"
    alone.barrier()
    assert (alone.get_rank(), alone.get_size(), alone.get_num_agents()) == (0, 1, 1)


def test_a_checkpoint_can_be_copied_elsewhere(context: core.Context, tmp_path: Path) -> None:
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, uuid):
        (path / "state").write_text("3")
    context.checkpoint.download(uuid, tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / "state").read_text() == "3"
    with pytest.raises(CheckpointError, match="unheard"):
        context.checkpoint.download("unheard-of", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_the_package_alone_is_enough_for_a_script() -> None:
    import det_jupyter as det

    assert det.core is core
    assert det.get_cluster_info() is None


def test_a_second_context_inside_of_a_block_is_told(
    context: core.Context, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with context:
        assert core.init(checkpoint_storage=tmp_path) is not context
    assert caplog.messages[:1] == [
        "core.init: called inside of the block of another; it returns another context, whose "
        "reports are apart"
    ]


def test_a_block_of_the_same_context_inside_of_another_leaves_it_open(
    context: core.Context,
) -> None:
    with context:
        with context:
            pass
        context.train.report_validation_metrics(1, {"error": 0.5})
    with pytest.raises(RuntimeError, match="block has ended; move the call"):
        context.train.report_validation_metrics(2, {"error": 0.5})


def test_nobody_asks_a_script_to_leave(context: core.Context) -> None:
    with pytest.raises(RuntimeError, match="block of this context has not begun; write `with"):
        context.preempt.should_preempt()
    with context:
        assert context.preempt.should_preempt() is False


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        (
            "report_metrics",
            ("training", 2**63, {}),
            r"^steps_completed: got 9223.*, expected at mo",
        ),
        ("report_validation_metrics", (2**53 + 1, {}), r"expected at most 2\*\*53"),
        (
            "report_validation_metrics",
            (10**5000, {}),
            "got an int of thousands of digits, expected",
        ),
        ("report_validation_metrics", (1, {"a": 10**400}), "metric 'a': got an integer of 1329 b"),
        ("report_validation_metrics", (1, {"a": [{"b": -(2**63)}]}), "metric 'a': got an integer"),
        ("report_metrics", ("x", 1, {}, {"epochs": math.inf}), r"trained\['epochs'\]: got inf"),
        ("report_metrics", ("x", 1, {}, {"epochs": -1}), "expected a number from 0 to"),
        ("report_progress", (math.nan,), "expected a number from 0 to 1"),
        ("report_progress", ("1",), "expected a number from 0 to 1"),
        ("report_progress", (0.5, -1), "expected 0 or more"),
        ("note_steps", (-1,), "expected 0 or more"),
        (
            "report_training_metrics",
            (1, {}, [{"a": 1}] * 2),
            "got 2 batches, expected at most the",
        ),
        ("report_training_metrics", (1, {}, [{"a": 10**400}]), "batch metric 'a': got an integer"),
    ],
)
def test_numbers_that_nothing_could_hold_are_refused_before_anything_is_reported(
    context: core.Context, method: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(context.train, method)(*arguments)
    assert records(context) == []


def test_lists_in_one_another_have_an_end(context: core.Context) -> None:
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(ValueError, match="without end"):
        context.train.report_validation_metrics(1, {"a": deep})
    nested: Any = 1
    for _ in range(30):
        nested = [nested]
    context.train.report_validation_metrics(1, {"a": nested})
    assert parse_line(to_line(records(context)[0])) == records(context)[0]
    with pytest.raises(ValueError, match="expected at most 32 levels"):
        context.train.report_validation_metrics(1, {"a": [nested]})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "checkpoint: metadata: steps_completed: got None, expected a whole number"),
        ({"steps_completed": -1}, "expected 0 or more"),
        ({"steps_completed": 2**63}, r"expected at most 2\*\*53"),
        ({"steps_completed": 1, "seen": 2**64}, "checkpoint: metadata: got an integer of 65"),
    ],
)
def test_a_checkpoint_says_at_which_batch_it_was_saved(
    context: core.Context, tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        context.checkpoint.upload(tmp_path, metadata)


def test_a_search_hears_of_no_step_that_cannot_be(context: core.Context) -> None:
    with pytest.raises(ValueError, match="expected 0 or more"):
        context.searcher.report_reached(-1)


def test_a_folder_that_cannot_be_written_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written: Not a directory"):
        core.init(checkpoint_storage=tmp_path / "file" / "checkpoints")


def test_a_rank_that_leaves_without_asking_again_says_so(context: core.Context) -> None:
    with context:
        assert not context.preempt.should_preempt()
        assert not context.preempt.is_acknowledged
        context.preempt.acknowledge_preemption_signal()
        assert context.preempt.is_acknowledged


def test_a_trial_may_end_early(context: core.Context) -> None:
    context.train.report_metrics("x", 4, {"a": 1})
    context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
    end = records(context)[1]
    assert isinstance(end, RunEnded)
    assert (end.reason, end.steps_completed) == ("stopped", 4)
    with pytest.raises(ValueError, match=r"expected one of EarlyExitReason\.INVALID_HP"):
        context.train.report_early_exit("invalid_hp")  # type: ignore[arg-type]


def test_a_status_is_said_in_the_log(
    context: core.Context, capfd: pytest.CaptureFixture[str]
) -> None:
    context.train.set_status("loading data")
    assert capfd.readouterr().out == "status: loading data\n"
    with pytest.raises(ValueError, match="got 3, expected a string"):
        context.train.set_status(3)  # type: ignore[arg-type]


def test_facts_of_a_run_are_metrics_of_a_group(context: core.Context) -> None:
    assert context.train.get_metadata() == {}
    context.train.set_metadata({"data": {"version": numpy.int64(3)}})
    assert context.train.get_metadata() == {"data": {"version": 3}}
    record = records(context)[0]
    assert isinstance(record, MetricsReported)
    assert (record.group, record.metrics) == ("metadata", {"data": {"version": 3}})
    with pytest.raises(ValueError, match="got 3, expected a dict"):
        context.train.set_metadata(3)  # type: ignore[arg-type]


def test_the_best_validation_is_that_of_the_search_or_a_better_own_one() -> None:
    best = BestValidation("loss", True, 0.5)
    train = core.TrainContext(core.RecordList(), core.DistributedContext(), best=best)
    assert train.get_experiment_best_validation() == 0.5
    for loss in (0.7, math.nan, 0.25, 0.3):
        train.report_validation_metrics(1, {"loss": loss})
    assert train.get_experiment_best_validation() == 0.25


@pytest.mark.parametrize("call", ["report_training_metrics", "report_validation_metrics"])
def test_a_rank_that_may_not_report_is_told_the_call_that_it_has_made(call: str) -> None:
    second = core.DistributedContext()
    second.rank = 1
    train = core.TrainContext(core.RecordList(), second)
    with pytest.raises(RuntimeError, match=f"^{call}: only the chief"):
        getattr(train, call)(1, {"loss": 1.0})


def test_files_for_tensorboard_have_a_folder(
    context: core.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert context.train.get_tensorboard_path().is_dir()
    with pytest.raises(RuntimeError, match=r"TensorboardMode\.MANUAL"):
        context.train.upload_tensorboard_files()
    manual = core.init(checkpoint_storage=tmp_path, tensorboard_mode=core.TensorboardMode.MANUAL)
    manual.train.upload_tensorboard_files()


def test_all_that_is_wrong_with_the_arguments_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        core.init(
            distributed=1,  # type: ignore[arg-type]
            preempt_mode="chief",  # type: ignore[arg-type]
            tensorboard_mode=None,  # type: ignore[arg-type]
            length=0,
        )
    assert [problem.split(": got")[0] for problem in said(caught.value.problems)] == [
        "core.init: distributed",
        "core.init: preempt_mode",
        "core.init: tensorboard_mode",
        "core.init: length",
    ]


@pytest.mark.parametrize("arguments", [(0.05, 1), ("1", 1), (True, 1), (1, 0), (1, 2.5)])
def test_the_profiler_refuses_what_determineds_refuses(
    context: core.Context, arguments: tuple[Any, Any]
) -> None:
    with pytest.raises(ValueError, match="at least"):
        context.profiler.on(*arguments)


def test_the_profiler_can_be_turned_off_and_on(context: core.Context) -> None:
    context.profiler.off()
    context.profiler.count("tokens")
    context.profiler.flush()
    assert records(context) == []
    context.profiler.on(0.1, 1)
    context.profiler.count("tokens")
    context.profiler.flush()
    assert len(records(context)) == 1


def test_every_name_of_determineds_is_there() -> None:
    names = (
        "CheckpointContext Context DistributedContext DownloadMode DummyDistributedContext "
        "DummyTrainContext EarlyExitReason PreemptContext PreemptMode ProfilerContext "
        "SearcherContext SearcherMode SearcherOperation TensorboardMode TrainContext Unit init"
    )
    assert set(names.split()) <= set(core.__all__)
    assert core.DummyDistributedContext().get_size() == 1
