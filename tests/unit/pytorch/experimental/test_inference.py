"""Batch inference off the cluster: how a data set is divided, what is refused, going on again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

from det_jupyter import core
from det_jupyter.contract.run.journal import MetricsReported, Progress
from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.pytorch import MetricReducer
from det_jupyter.pytorch.experimental import (
    Outcome,
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    get_default_device,
    output_files,
    torch_batch_process,
)
from det_jupyter.pytorch.experimental.setup import Batches, find_problems, make_loader
from tests.problems import said


class Stopped(Exception):
    """Ends a run in the middle, as an interrupt would."""


class Writing(TorchBatchProcessor):
    """Writes each batch into a file; fails at `fails_at`."""

    fails_at = -1

    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.context = context
        self.sum = context.wrap_reducer(sum, "sum")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        assert not torch.is_grad_enabled()
        if batch_idx == self.fails_at:
            raise Stopped
        self.sum.update(int(batch.sum()))  # type: ignore[attr-defined]  # a function's has it
        with self.context.upload_path() as path:
            (path / f"{batch_idx}").write_text(" ".join(map(str, batch.tolist())))


class Failing(Writing):
    fails_at = 7


def infer(
    folder: Path, processor: type[TorchBatchProcessor] = Writing, **arguments: Any
) -> tuple[Outcome, core.Context]:
    arguments = {"batch_size": 2, **arguments}
    with core.init(checkpoint_storage=folder) as context:
        return torch_batch_process(processor, list(range(21)), **arguments), context


def numbers(outcome: Any) -> list[int]:
    return [int(n) for file in output_files(outcome) for n in file.read_text().split()]


@settings(max_examples=60)
@given(
    records=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=6),
)
def test_any_number_of_ranks_in_any_runs_load_every_record_once(
    records: int, batch_size: int, sizes: list[tuple[int, int]]
) -> None:
    total = -(-records // batch_size)
    batches = Batches(records=records, batch_size=batch_size, total=total)
    done, loaded = 0, []
    for ranks, rounds in [*sizes, (2, total)]:
        stop = min(total, done + ranks * rounds)
        for rank in range(ranks):
            indices = range(done + rank, stop, ranks)
            loader = make_loader(list(range(records)), batches, indices, {"shuffle": False})
            loaded += [number for batch in loader for number in batch.tolist()]
        done = stop
    assert sorted(loaded) == list(range(records))


def test_a_script_processes_everything_and_reports_it(tmp_path: Path) -> None:
    outcome, context = infer(tmp_path)
    assert (outcome.finished, outcome.batches, outcome.metrics) == (True, 11, {"sum": 210})
    assert numbers(outcome) == [*range(16), *range(16, 21)]
    assert isinstance(context.sink, core.RecordList)
    metrics = [r for r in context.sink.records if isinstance(r, MetricsReported)]
    assert [(m.group, m.steps_completed, m.metrics) for m in metrics] == [
        ("validation", 11, {"sum": 210})
    ]
    progress = [r.fraction for r in context.sink.records if isinstance(r, Progress)]
    assert progress[-1] == 1.0
    assert core.read_metadata(outcome.path)["steps_completed"] == 11


def test_a_script_that_failed_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path) as context, pytest.raises(Stopped):
        torch_batch_process(Failing, list(range(21)), batch_size=2, checkpoint_interval=3)
    assert list(tmp_path.glob(".part-*")) == []
    assert isinstance(context.sink, core.RecordList)
    (newest,) = sorted(
        (path for path in tmp_path.glob("*-*") if not path.name.startswith(".")),
        key=lambda path: int(core.read_metadata(path)["steps_completed"]),
    )[-1:]
    assert numbers(newest) == list(range(12))
    outcome, _ = infer(tmp_path, latest_checkpoint=newest, checkpoint_interval=3)
    assert sorted(numbers(outcome)) == list(range(21))
    assert outcome.metrics == {"sum": 210}
    assert numbers(newest) == list(range(12))


def test_the_number_of_batches_can_be_bounded_and_short_ones_dropped(tmp_path: Path) -> None:
    some, _ = infer(tmp_path, max_batches=3)
    assert numbers(some) == [0, 1, 2, 3, 4, 5]
    whole, _ = infer(tmp_path, dataloader_kwargs={"drop_last": True})
    assert sorted(numbers(whole)) == list(range(20))
    rest, _ = infer(tmp_path, latest_checkpoint=some.path)
    assert sorted(numbers(rest)) == list(range(21))


def test_workers_load_the_same_batches(tmp_path: Path) -> None:
    outcome, _ = infer(tmp_path, dataloader_kwargs={"num_workers": 2})
    assert sorted(numbers(outcome)) == list(range(21))


def test_a_batch_size_that_is_left_out_is_one_and_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="batch_size is not given, so it is 1"):
        outcome, _ = infer(tmp_path, batch_size=None)
    assert outcome.batches == 21


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "arguments", "problems"),
    [
        (Stream(), {}, ["dataset: got a Stream without __len__; its records must have numbers, "
         "so that each can be told from what is done: give a map-style dataset, or a list of the "
         "records"]),
        ([], {}, ["dataset: the list has no records"]),
        ([1], {"shuffle": True, "batch_size": 3}, [
         "dataloader_kwargs['shuffle']: got True, expected it to be left out: the records are "
         "taken in their order, so that any number of ranks can go on",
         "dataloader_kwargs['batch_size']: give it as the batch_size argument"]),
        ([1], {"sampler": [0]}, [
         "dataloader_kwargs['sampler']: the records are taken in their order, so that any number "
         "of ranks can go on; to leave records out, give a torch.utils.data.Subset"]),
        ([1], {"shufle": False}, ["dataloader_kwargs['shufle']: torch.utils.data.DataLoader has "
         "no such argument"]),
        ([1], {"shuffle": False, "batch_sampler": None, "num_workers": 1}, []),
    ],
)  # fmt: skip
def test_data_that_cannot_be_divided_is_refused(
    dataset: Any, arguments: dict[str, Any], problems: list[str]
) -> None:
    assert find_problems(dataset, arguments) == problems


def test_all_that_is_wrong_with_a_call_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        infer(tmp_path, Batches, batch_size=0, max_batches=True, checkpoint_interval=1.5)  # type: ignore[arg-type]  # what is tested
    assert said(refused.value.problems) == [
        "torch_batch_process: batch_processor_cls: got Batches, expected a class derived from "
        "TorchBatchProcessor",
        "torch_batch_process: batch_size: got 0, expected a whole number from 1 on",
        "torch_batch_process: max_batches: got True, expected a whole number from 1 on",
        "torch_batch_process: checkpoint_interval: got 1.5, expected a whole number from 1 on",
    ]


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    outcome, _ = infer(tmp_path, max_batches=2)
    with pytest.raises(ConfigError, match=r"it is of batch_size 2, now it is 3; start a new"):
        infer(tmp_path, batch_size=3, latest_checkpoint=outcome.path)


def test_a_reducer_that_came_later_is_refused(tmp_path: Path) -> None:
    class Bare(TorchBatchProcessor):
        def __init__(self, context: TorchBatchProcessorContext) -> None:
            pass

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            pass

    outcome, _ = infer(tmp_path, Bare, max_batches=2)
    assert (outcome.metrics, output_files(outcome)) == ({}, [])
    with pytest.raises(ConfigError, match="the processor wraps 1 reducers, and had 0 when"):
        infer(tmp_path, latest_checkpoint=outcome.path)


class Plain(MetricReducer):
    """A reducer without `state_dict`, that holds more than numbers."""

    def reset(self) -> None:
        self.seen: dict[str, Any] = {"sum": torch.zeros(1), "all": numpy.zeros(0), "set": set()}

    def update(self, batch: torch.Tensor) -> None:
        self.seen["sum"] = self.seen["sum"] + batch.sum()
        self.seen["all"] = numpy.append(self.seen["all"], batch.numpy())
        self.seen["set"].update(batch.tolist())

    def per_slot_reduce(self) -> dict[str, Any]:
        return self.seen

    def cross_slot_reduce(self, per_slot_metrics: list[dict[str, Any]]) -> dict[str, Any]:
        (seen,) = per_slot_metrics
        return {name: len(seen[name]) for name in ("all", "set")} | {"sum": float(seen["sum"])}


class Seeing(Writing):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.plain = context.wrap_reducer(Plain())

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        self.plain.update(batch)  # type: ignore[attr-defined]  # Plain has it


def test_reducers_are_saved_so_that_loading_them_runs_no_code(tmp_path: Path) -> None:
    outcome, _ = infer(tmp_path, Seeing, max_batches=4)
    (file,) = Path(outcome.path).rglob("slot_0.pt")
    assert torch.load(file, weights_only=True)["slot"]["took_part"] is True
    whole, _ = infer(tmp_path, Seeing, latest_checkpoint=outcome.path)
    assert whole.metrics == {"all": 21, "set": 21, "sum": 210.0}


def test_a_reducer_that_holds_what_cannot_be_loaded_safely_is_refused(tmp_path: Path) -> None:
    class Holding(Seeing):
        def process_batch(self, batch: Any, batch_idx: int) -> None:
            self.plain.folder = Path("x")  # type: ignore[attr-defined]  # the mistake

    with pytest.raises(ConfigError, match=r"what a reducer holds cannot be saved \(pathlib\.Posi"):
        infer(tmp_path, Holding)


def test_a_processor_knows_its_place_and_its_device(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    class Curious(TorchBatchProcessor):
        def __init__(self, context: TorchBatchProcessorContext) -> None:
            self.context = context
            seen["place"] = context.get_distributed_rank(), context.get_distributed_size()
            seen["hparams"] = context.get_hparams()
            seen["model"] = context.prepare_model_for_inference(torch.nn.Dropout())
            seen["device"] = context.device
            context.report_task_using_checkpoint("1234-abcd")
            context.report_task_using_model_version("digits/3")

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            (seen["batch"],) = self.context.to_device(batch)
            self.context.report_metrics("inference", batch_idx + 1, {"length": len(batch[0])})

    with core.init(checkpoint_storage=tmp_path) as context:
        data = TensorDataset(torch.arange(4))
        outcome = torch_batch_process(Curious, data, batch_size=4)
        assert seen["device"] == get_default_device(context)
    assert seen["place"] == (0, 1)
    assert seen["hparams"] == {}
    assert not seen["model"].training
    assert seen["batch"].tolist() == [0, 1, 2, 3]
    metadata = core.read_metadata(outcome.path)["batch_inference"]
    assert metadata["sources"] == ["checkpoint 1234-abcd", "model digits/3"]


def test_a_processor_has_a_folder_for_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Drawing(Writing):
        def on_finish(self) -> None:
            (self.context.get_tensorboard_path() / "drawn").touch()

    infer(tmp_path / "checkpoints", Drawing)
    assert (tmp_path / "tensorboard" / "drawn").exists()


def test_results_of_a_checkpoint_that_is_gone_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        output_files(tmp_path / "gone")


def test_the_context_of_a_block_is_the_current_one_until_its_end(tmp_path: Path) -> None:
    assert core.current() is None
    with core.init(checkpoint_storage=tmp_path) as outer:
        assert core.current() is outer
        with core.init(checkpoint_storage=tmp_path) as inner:
            assert core.current() is inner
            assert inner is not outer
        assert core.current() is outer
    assert core.current() is None
