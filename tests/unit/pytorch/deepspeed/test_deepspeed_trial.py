"""A DeepSpeedTrial in a script, on one rank; the engine is played."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from det_jupyter import load_checkpoint
from det_jupyter.config import parse_config
from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.pytorch import Batch, Epoch, PyTorchCallback, check_trial_class, init, try_out
from det_jupyter.pytorch.deepspeed import (
    DeepSpeedTrial,
    Trainer,
    overwrite_deepspeed_config,
)
from det_jupyter.pytorch.deepspeed import (
    init as init_deepspeed,
)
from det_jupyter.pytorch.deepspeed.savepoints import EngineSavepoints
from det_jupyter.pytorch.rules import RunStart
from tests.unit.pytorch.deepspeed.played_engine import WINDOW, Engine, Trial

Fit = Callable[..., tuple[Any, list[Any]]]


@pytest.fixture(autouse=True)
def _no_group() -> Iterator[None]:
    """End the process group that a context has made: DeepSpeed is not here."""
    environment = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environment)
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    """Train a trial by these arguments of `fit`; return it, and the reports of metrics."""

    def train(kind: type[Trial] = Trial, **given: Any) -> tuple[Any, list[Any]]:
        with init_deepspeed(seed=3, checkpoint_storage=tmp_path) as context:
            trial = kind(context)
            Trainer(trial, context).fit(reporting_period=Batch(1), **given)
            assert context.core is not None
            sink: Any = context.core.sink
        return trial, sink.records

    return train


def checkpoints(folder: Path) -> list[Path]:
    """Return the folders of checkpoints, oldest first."""

    def steps(path: Path) -> int:
        found: int = json.loads((path / "metadata.json").read_text())["steps_completed"]
        return found

    return sorted((each.parent for each in folder.glob("*/metadata.json")), key=steps)


def test_a_batch_is_a_step_of_the_engine(fit: Fit, tmp_path: Path) -> None:
    trial, records = fit(max_length=Epoch(1), validation_period=Batch(2))
    assert [index for index, _ in trial.losses] == [i for i in range(4) for _ in range(WINDOW)]
    reported = [each for each in records if isinstance(each, MetricsReported)]
    training = [each for each in reported if each.group == "training"]
    losses = [loss for _, loss in trial.losses]
    means = [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses), WINDOW)]
    assert [each.metrics["loss"] for each in training] == pytest.approx(means)
    assert [each.steps_completed for each in training] == [1, 2, 3, 4]
    assert [each.steps_completed for each in reported if each.group == "validation"] == [2, 4]
    newest = checkpoints(tmp_path)[-1]
    assert {"model0", "rank-0.pt"} <= {each.name for each in newest.iterdir()}
    assert Origin.read(newest).library == "deepspeed"
    weights = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5))
    loaded = load_checkpoint(newest, model=weights)
    assert torch.equal(loaded[0].weight, trial.engine.module[0].weight)


def test_a_training_goes_on_as_if_it_had_not_ended(fit: Fit, tmp_path: Path) -> None:
    whole, _ = fit(max_length=Batch(6))
    first, _ = fit(max_length=Batch(3))
    rest, _ = fit(max_length=Batch(6), latest_checkpoint=checkpoints(tmp_path)[0])
    assert first.losses + rest.losses == whole.losses
    assert torch.equal(rest.engine.module[0].weight, whole.engine.module[0].weight)
    assert (first.saves.count, rest.saves.count) == (3, 6)
    assert rest.saves.calls == ["load", "write"]


def test_a_trial_may_take_all_micro_batches_itself(fit: Fit) -> None:
    class Manual(Trial):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            context.disable_auto_grad_accumulation()

        def train_batch(
            self, dataloader_iter: Iterator[Any], epoch_idx: int, batch_idx: int
        ) -> dict[str, Any]:
            num = self.context.get_num_micro_batches_per_slot()
            return [
                super(Manual, self).train_batch(dataloader_iter, epoch_idx, batch_idx)
                for _ in range(num)
            ][-1]

    manual, _ = fit(Manual, max_length=Batch(4))
    automatic, _ = fit(max_length=Batch(4))
    assert manual.losses == automatic.losses


def test_a_trial_is_tried_out_without_a_master(capsys: pytest.CaptureFixture[str]) -> None:
    searcher = {"name": "single", "metric": "error", "max_length": {"batches": 9}}
    config = parse_config({"entrypoint": "m:Trial", "searcher": searcher}, default_seed=0)
    trial = try_out(Trial, config, {}, batches=1)
    assert [index for index, _ in trial.losses] == [0] * WINDOW  # type: ignore[attr-defined]
    assert "1 batches, their validation and a checkpoint worked" in capsys.readouterr().out


def greedy(method: str) -> type[Trial]:
    """Return a trial whose method takes one batch too many."""

    def take(self: Any, dataloader_iter: Iterator[Any], *indices: int) -> Any:
        for _ in range(WINDOW + 1):
            next(dataloader_iter)

    return type("Greedy", (Trial,), {method: take})


def test_micro_batches_that_are_left_are_named(fit: Fit) -> None:
    class Lazy(Trial):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            context.disable_auto_grad_accumulation()

    with pytest.raises(
        ConfigError, match=r"left 2 of the 3 micro batches of batch 0, .*all in one"
    ):
        fit(Lazy, max_length=Batch(1))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("abc", r"metric 'loss' of batch 0 has no mean over its micro batches"),
        (
            [torch.zeros(1), torch.zeros(2), torch.zeros(3)],
            r"metric 'loss' of batch 0 has no mean",
        ),
    ],
)
def test_metrics_without_a_mean_are_named(fit: Fit, values: Any, said: str) -> None:
    given = iter(values)

    class Odd(Trial):
        def train_batch(self, dataloader_iter: Iterator[Any], *indices: int) -> dict[str, Any]:
            super().train_batch(dataloader_iter, *indices)
            return {"loss": next(given)}

    with pytest.raises(ConfigError, match=said):
        fit(Odd, max_length=Batch(1))


def test_a_mean_keeps_no_graph_of_a_micro_batch(fit: Fit) -> None:
    class Watching(PyTorchCallback):
        def on_training_batch_end(self, metrics: Any, epoch_idx: int, batch_idx: int) -> None:
            assert not metrics["loss"].requires_grad

    class Watched(Trial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"watching": Watching()}

    fit(Watched, max_length=Batch(1))


@pytest.mark.parametrize("method", ["train_batch", "evaluate_batch"])
def test_a_method_that_takes_too_many_batches_is_named(fit: Fit, method: str) -> None:
    with pytest.raises(ConfigError, match=rf"{method}: took more batches from its iterator"):
        fit(greedy(method), max_length=Batch(1))


def test_what_an_engine_cannot_be_is_refused(tmp_path: Path) -> None:
    with init_deepspeed(seed=3, checkpoint_storage=tmp_path) as context:
        pipeline = type("PipelineEngine", (Engine,), {})()
        with pytest.raises(ConfigError, match=r"got a PipelineEngine.*launch\.deepspeed"):
            context.wrap_model_engine(pipeline)
        with pytest.raises(ConfigError, match=r"got a Linear, expected an engine"):
            context.wrap_model_engine(torch.nn.Linear(1, 1))
        with pytest.raises(ConfigError, match=r"call context\.wrap_model_engine first"):
            context.get_num_micro_batches_per_slot()
        model = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(model.parameters())
        for refused, method in (
            (lambda: context.wrap_model(model), "wrap_model"),
            (
                lambda: context.wrap_optimizer(sgd),
                "wrap_optimizer",
            ),
            (lambda: context.wrap_scaler(None), "wrap_scaler"),
            (lambda: context.backward(torch.zeros(1)), "backward"),
            (context.experimental.use_amp, "use_fp16"),
        ):
            with pytest.raises(ConfigError, match=rf"{method}: a DeepSpeedTrial wraps engines"):
                refused()
        with pytest.raises(ConfigError, match=r"set_mpu: .*stage 3"):
            context.set_mpu(None)
        bare = type("Bare", (Trial,), {"__init__": lambda self, context: None})
        with pytest.raises(ConfigError, match=r"Bare\.__init__ has to call .*wrap_model_engine"):
            Trainer(bare(context), context)
    lacking = type("Lacking", (DeepSpeedTrial,), {})
    assert check_trial_class(lacking) == [
        "Lacking lacks __init__, train_batch, build_training_data_loader and "
        "build_validation_data_loader; define them in the class",
        "Lacking lacks evaluate_batch; define it (or evaluate_full_dataset)",
    ]
    with init(seed=3) as other, pytest.raises(ConfigError, match=r"pytorch\.deepspeed\.init"):
        Trainer(object.__new__(Trial), other)


def test_keys_that_an_engine_does_not_follow_are_all_named() -> None:
    keys = {"aggregation_frequency": 2, "sharding": "fsdp", "mixed_precision": "bf16"}
    given = {"optimizations": keys, "entrypoint": "m:T"}
    with pytest.raises(ConfigError) as caught, init_deepspeed(exp_conf=given, seed=1):
        pass
    for key in keys:
        assert f"optimizations.{key}: got" in str(caught.value)


def test_a_range_of_slots_is_refused() -> None:
    given = {"resources": {"slots_per_trial": {"min": 1, "max": 4}}, "entrypoint": "m:T"}
    said = r"resources\.slots_per_trial: got 1 to 4, .* give one number"
    with pytest.raises(ConfigError, match=said), init_deepspeed(exp_conf=given, seed=1):
        pass


def test_a_checkpoint_is_for_the_number_of_ranks_that_saved_it(fit: Fit, tmp_path: Path) -> None:
    fit(max_length=Batch(1))
    (folder,) = checkpoints(tmp_path)
    (folder / "rank-1.pt").write_bytes((folder / "rank-0.pt").read_bytes())
    with pytest.raises(
        CheckpointError, match=r"2 ranks .*saved it, and 1 rank cannot .*_trial: 2"
    ):
        fit(max_length=Batch(2), latest_checkpoint=folder)


def test_a_training_with_other_hyperparameters_says_what_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lr, batches in ((0.1, 1), (0.2, 2)):
        with init_deepspeed(hparams={"lr": lr}, seed=3, checkpoint_storage=tmp_path) as context:
            newest = next(iter(checkpoints(tmp_path)), None)
            Trainer(Trial(context), context).fit(
                max_length=Batch(batches), latest_checkpoint=newest
            )
    said = capsys.readouterr().err
    assert "goes on at batch 1 with other hyperparameters: lr 0.1 → 0.2. Optimizers" in said


def test_weights_of_another_trial_are_refused() -> None:
    source = CheckpointRef(uuid="u", path="/x/u", steps_completed=1)
    nothing: Any = None
    with pytest.raises(ConfigError, match=r"begins with no weights of another trial"):
        EngineSavepoints(
            nothing, nothing, nothing, RunStart(seed=1, warm_start=source), nothing, nothing
        )


def test_a_configuration_of_deepspeed_is_overwritten_section_by_section(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"fp16": {"enabled": True}, "steps_per_print": 9}))
    changed = overwrite_deepspeed_config(file, {"fp16": {"enabled": False}, "zero": {"stage": 1}})
    assert changed == {"fp16": {"enabled": False}, "steps_per_print": 9, "zero": {"stage": 1}}
    with pytest.raises(TypeError, match=r"expected a configuration"):
        overwrite_deepspeed_config(3, {})  # type: ignore[arg-type]
