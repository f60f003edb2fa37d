"""The callback for transformers: what it reports and saves, and that a pause changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import MetricsReported, Progress, RunEnded
from det_jupyter.errors import DetError
from tests.unit.integrations.contexts import (
    compared_at_the_end,
    ending,
    metrics,
    new_context,
    notices,
    records,
    runs_of,
    saved,
    searched,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    yield from runs_of("transformers")


@pytest.fixture
def context(tmp_path: Path, runs: Any) -> core.Context:
    return new_context(tmp_path / "storage")


def ask(context: core.Context, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Request the trial to leave in this step; the ranks exchange that after each step."""
    calls = iter(range(1, 1000))
    monkeypatch.setattr("det_jupyter.integrations.leaving._EXCHANGE_S", 0)
    monkeypatch.setattr(context.preempt, "was_asked", lambda: next(calls) >= step)


def test_metrics_progress_and_checkpoints_are_those_of_the_training(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    alone = runs.train(context, tmp_path / "out", callbacks=[], save_strategy="no")
    assert metrics(context) == []
    made = runs.train(context, tmp_path / "out")
    assert runs.torch.equal(runs.weights(made), runs.weights(alone))
    assert runs.history(made) == runs.history(alone)
    names = [(group, at, sorted(values)) for group, at, values in metrics(context)]
    training = ["grad_norm", "learning_rate", "loss"]
    assert names[:4] == [
        ("training", 2, training),
        ("training", 4, training),
        ("validation", 5, ["eval_loss"]),
        ("training", 6, training),
    ]
    assert [each.steps_completed for each in saved(context)] == [5, 10, 15]
    amounts = [each.trained for each in records(context, MetricsReported)][:3]
    assert amounts == [{"batches": at, "epochs": at / 5} for at in (2, 4, 5)]
    assert records(context, Progress)[-1].fraction == 1.0
    assert records(context, RunEnded) == []  # nothing has stopped it early
    assert not (tmp_path / "out" / "trial-1").exists()  # what was saved there is stored once


def test_a_checkpoint_has_the_trained_model(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    made = runs.train(context, tmp_path / "out")
    with context.checkpoint.restore_path(saved(context)[-1].uuid) as folder:
        loaded = runs.GPT2LMHeadModel.from_pretrained(folder)
    assert runs.torch.equal(loaded.lm_head.weight, made.model.lm_head.weight)


@pytest.mark.parametrize(
    ("asked", "left", "strategy"),
    [
        (3, 4, {}),  # at the next log
        (4, 4, {}),
        (9, 10, {}),  # at the end of an epoch, after its evaluation
        (7, 10, {"logging_strategy": "epoch"}),
        (7, 7, {"logging_strategy": "no"}),
        (6, 6, {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "no"}),
        (9, 10, {"save_strategy": "steps", "save_steps": 5}),
    ],
)
def test_paused_training_goes_on_as_if_it_had_not_been_paused(
    runs: Any,
    context: core.Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: int,
    left: int,
    strategy: dict[str, Any],
) -> None:
    undisturbed = runs.train(context, tmp_path / "out", **strategy)
    first = new_context(tmp_path / "paused")
    ask(first, asked, monkeypatch)
    assert runs.train(first, tmp_path / "out", **strategy).state.global_step == left
    assert first.preempt.is_acknowledged
    assert saved(first)[-1].steps_completed == left
    second = new_context(tmp_path / "paused", saved(first)[-1].uuid)
    runs.torch.manual_seed(99)  # of another process
    made = runs.train(second, tmp_path / "out", **strategy)
    assert runs.torch.equal(runs.weights(made), runs.weights(undisturbed))
    assert runs.history(made) == runs.history(undisturbed)
    assert metrics(first) + metrics(second) == metrics(context)


def test_progress_is_reported_once_a_second_between_logs(
    runs: Any, context: core.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.integrations.leaving._EXCHANGE_S", 0)  # after each step
    made = runs.trainer(
        context, tmp_path / "out", logging_strategy="no", eval_strategy="no", save_strategy="no"
    )
    (callback,) = [
        each for each in made.callback_handler.callbacks if isinstance(each, runs.DetCallback)
    ]
    clock = SimpleNamespace(monotonic=lambda: 1000 + made.state.global_step / 4)
    monkeypatch.setattr("det_jupyter.integrations.transformers.time", clock)
    with context:
        made.train(resume_from_checkpoint=callback.resume_from_checkpoint)
    steps = [each.steps_completed for each in records(context, Progress)]
    assert steps == [1, 5, 9, 13, 15]  # with the last one


def test_a_trial_that_has_trained_more_than_it_should_is_all_done(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    runs.train(context, tmp_path / "out", max_steps=10)
    again = new_context(tmp_path / "storage", saved(context)[-1].uuid)
    runs.train(again, tmp_path / "out", max_steps=5)
    assert {each.fraction for each in records(again, Progress)} == {1.0}


def test_pause_does_not_wait_long_for_a_log(
    runs: Any, context: core.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.integrations.leaving._PATIENCE_S", -1)
    ask(context, 3, monkeypatch)
    runs.train(context, tmp_path / "out", logging_steps=500)
    assert [(at, "loss" in values) for _, at, values in metrics(context)] == [(3, True)]


def test_what_is_logged_after_a_pause_is_not_reported(
    runs: Any, context: core.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(context, 2, monkeypatch)
    callback = None
    with context:
        callback = runs.DetCallback()
    made = runs.train(context, tmp_path / "out", [callback])
    assert callback.has_left
    made.evaluate()
    assert [group for group, _, _ in metrics(context)] == ["training"]


def test_best_model_is_loaded_at_the_end_also_if_it_was_best_before_a_pause(
    runs: Any,
    context: core.Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    best = {
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "greater_is_better": True,  # so that the first one is the best
    }
    with context:
        undisturbed = runs.train(context, tmp_path / "out", **best)
        undisturbed.evaluate()  # of the best model, at the step of the last one
    assert undisturbed.state.best_global_step == 5
    losses = {
        at: values["eval_loss"] for _, at, values in metrics(context)[:4] if len(values) == 1
    }
    reported = [(at, values["eval_loss"]) for group, at, values in metrics(context)[-2:]]
    assert reported == [(15, reported[0][1]), (15, losses[5])]
    first = new_context(tmp_path / "paused")
    ask(first, 7, monkeypatch)
    runs.train(first, tmp_path / "first", **best)
    second = new_context(tmp_path / "paused", saved(first)[-1].uuid)
    made = runs.train(second, tmp_path / "first", **best)
    assert runs.torch.equal(runs.weights(made), runs.weights(undisturbed))
    shutil.rmtree(saved(first)[0].path)
    third = new_context(tmp_path / "paused", saved(first)[-1].uuid)
    runs.trainer(third, tmp_path / "third", **best)
    assert "the best model so far is gone" in caplog.text


@pytest.mark.parametrize(
    ("unit", "first", "targets", "ends"),
    [
        ("batches", 3, [(7, False)], 7),
        ("epochs", 1, [(2, False)], 10),
        ("batches", 3, [(7, False), (15, True)], 15),
    ],
)
def test_search_compares_a_trial_where_it_asks_to(
    runs: Any,
    context: core.Context,
    tmp_path: Path,
    unit: str,
    first: int,
    targets: list[tuple[int, bool]],
    ends: int,
) -> None:
    runs_to = searched(context, unit, "eval_loss", *targets, first=first)
    strategies = {"eval_strategy": "no", "save_strategy": "no"}
    made = runs.train(runs_to, tmp_path / "out", **strategies)
    assert made.state.global_step == ends
    per_unit = 1 if unit == "batches" else runs.STEPS_PER_EPOCH
    compared = [per_unit * each for each in (first, *(target for target, _ in targets))]
    validated = [at for group, at, _ in metrics(context) if group == "validation"]
    assert validated == [each.steps_completed for each in saved(context)] == compared
    assert records(runs_to, RunEnded) == []  # the search has ended it


@pytest.mark.parametrize(("strategy", "evaluated"), [("epoch", [5, 7]), ("no", [])])
def test_a_trial_that_evaluates_does_so_where_it_ends_too(
    runs: Any, context: core.Context, tmp_path: Path, strategy: str, evaluated: list[int]
) -> None:
    ends = ending(context, "batches", "eval_loss", 7)
    made = runs.train(ends, tmp_path / "out", eval_strategy=strategy)
    assert made.state.global_step == 7
    assert [at for group, at, _ in metrics(context) if group == "validation"] == evaluated


def test_search_may_compare_by_any_of_several_data_sets(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    sets = {name: runs.data(4) for name in ("first", "second")}
    search = searched(context, "batches", "eval_first_loss", (4, False), first=2)
    made = runs.train(search, tmp_path / "out", eval_dataset=sets, eval_strategy="no")
    assert made.state.global_step == 4


@pytest.mark.parametrize(("targets", "ends"), [([(15, True)], 15), ([], 6)])
def test_trial_that_was_paused_where_the_search_compares_is_compared_when_it_goes_on(
    runs: Any, context: core.Context, tmp_path: Path, targets: list[tuple[int, bool]], ends: int
) -> None:
    runs.train(searched(context, "batches", "eval_loss", first=5), tmp_path / "out")
    again = new_context(tmp_path / "storage", saved(context)[-1].uuid)
    search = searched(again, "batches", "eval_loss", *targets, first=5)
    made = runs.train(search, tmp_path / "out")
    assert made.state.global_step == ends  # a Trainer takes one step at least; it is not saved
    with again.checkpoint.restore_path(saved(context)[-1].uuid) as folder:
        before = runs.GPT2LMHeadModel.from_pretrained(folder).lm_head.weight
    assert runs.torch.equal(made.model.lm_head.weight, before) == (not targets)
    reported = [(group, at) for group, at, _ in metrics(again)]
    assert reported[0] == ("validation", 5)
    assert [each.steps_completed for each in saved(again)] == ([10, 15] if targets else [])


def test_searcher_metric_that_is_not_evaluated_is_said_after_the_first_evaluation(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    runs_to = searched(context, "batches", "accuracy", (7, False), first=12)
    problem = "searcher.metric is accuracy, .* evaluation has not logged; it has logged: eval_loss"
    with pytest.raises(DetError, match=problem):
        runs.train(runs_to, tmp_path / "out")
    assert records(context, Progress)[-1].steps_completed == 5


def test_a_trial_that_goes_on_says_what_was_evaluated_in_the_run_before(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    runs.train(searched(context, "batches", "eval_loss", first=5), tmp_path / "out")
    again = new_context(tmp_path / "storage", saved(context)[-1].uuid)
    search = searched(again, "batches", "accuracy", (15, True), first=5)
    with pytest.raises(DetError, match=r"metric is accuracy, .* it has logged: eval_loss$"):
        runs.train(search, tmp_path / "out")


@pytest.mark.parametrize(
    ("strategy", "found", "steps"),
    [
        ("epoch", "validations have: eval_loss", {5, 6}),  # when the training goes on
        ("no", "there is no validation", {4}),  # at the first checkpoint, in step 5
    ],
)
def test_searcher_metric_that_is_not_evaluated_is_named_though_nothing_is_compared(
    runs: Any, context: core.Context, tmp_path: Path, strategy: str, found: str, steps: set[int]
) -> None:
    alone = compared_at_the_end(context, "accuracy")
    runs.train(alone, tmp_path / "out", eval_strategy=strategy)
    said = f"searcher.metric is accuracy, and {found}; so no checkpoint is the best one"
    assert notices(alone).keys() == {said}
    assert notices(alone)[said] in steps


def test_token_counts_do_not_hide_the_metrics_of_training(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    runs.train(context, tmp_path / "out", include_num_input_tokens_seen="all")
    training = [sorted(values) for group, _, values in metrics(context) if group == "training"]
    assert training == [["grad_norm", "learning_rate", "loss"]] * 7


def test_a_model_may_be_evaluated_before_it_is_trained(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    with context:
        runs.trainer(context, tmp_path / "out").evaluate()
    assert [(group, at) for group, at, _ in metrics(context)] == [("validation", 0)]
    assert records(context, MetricsReported)[0].trained == {"batches": 0, "epochs": 0}
    assert records(context, Progress) == []


def test_two_trainers_have_the_arguments_of_one(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    arguments = runs.trainer(context, tmp_path / "out").args
    with context:
        model, data = runs.GPT2LMHeadModel(runs.CONFIG), runs.data(4)
        callbacks = [runs.DetCallback()]
        again = runs.Trainer(model, arguments, eval_dataset=data, callbacks=callbacks)
    assert again.args.output_dir == str(tmp_path / "out" / "trial-1")


def test_a_second_training_of_the_trial_is_refused(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    runs.train(context, tmp_path / "out")
    with pytest.raises(DetError, match=r"has trained 15 steps already, .* begins at 0; give"):
        runs.train(context, tmp_path / "out")


def test_search_in_records_is_refused(runs: Any, context: core.Context, tmp_path: Path) -> None:
    with pytest.raises(DetError, match=r"max_length is in records, .*write max_length: \{batches"):
        runs.train(searched(context, "records", "eval_loss", (7, False)), tmp_path / "out")


def test_training_without_the_checkpoint_is_refused(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    runs.train(context, tmp_path / "out")
    made = runs.trainer(
        new_context(tmp_path / "storage", saved(context)[0].uuid), tmp_path / "out"
    )
    with pytest.raises(DetError, match=r"write trainer\.train\(resume_from_checkpoint=callback"):
        made.train()
    made = runs.trainer(new_context(tmp_path / "storage"), tmp_path / "out")
    with pytest.raises(DetError, match=r"may be paused, .* which is None where training begins"):
        made.train()


def test_bad_uses_are_refused_when_the_trainer_is_made(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    core.set_current(None)
    with pytest.raises(DetError, match=r"DetCallback: .* inside of `with core\.init\(\)"):
        runs.DetCallback()
    with context:
        callbacks = [runs.DetCallback(), runs.DetCallback()]
    with pytest.raises(DetError, match="it twice"):
        runs.trainer(context, tmp_path / "out", callbacks)
    with pytest.raises(DetError, match="it twice"):
        runs.trainer(context, tmp_path / "out", callbacks[:1] * 2)
    two = new_context(tmp_path / "storage", distributed=TwoRanks())
    never = {
        "save_strategy": "best",
        "metric_for_best_model": "loss",
        "save_only_model": True,
    }
    with pytest.raises(DetError) as raised:
        runs.trainer(two, tmp_path / "out", **never)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("DetCallback: the Trainer has 1 process, and the trial 2; ")


class TwoRanks:
    """The ranks of a trial, of which this is the chief."""

    size, rank, local_rank, is_chief = 2, 0, 0, True


def test_trainer_that_is_too_short_for_the_search_is_refused(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    for unit, first, setting in (("batches", 20, "max_steps"), ("epochs", 4, "num_train_epochs")):
        search = searched(context, unit, "eval_loss", first=first)
        with pytest.raises(DetError, match=rf"the search has {first} .* write .*{setting}=N"):
            runs.train(search, tmp_path / "out")


def test_training_that_a_callback_stops_is_over_for_the_search(
    runs: Any, context: core.Context, tmp_path: Path
) -> None:
    class StopsAt(runs.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step >= 7

    search = searched(context, "batches", "eval_loss", (15, True), first=12)
    with search:
        callback = runs.DetCallback()
    runs.train(search, tmp_path / "out", callbacks=[callback, StopsAt()])
    (ended,) = records(search, RunEnded)
    assert ended.reason == "stopped"


def test_only_a_callback_ends_the_reading_of_what_is_written(
    runs: Any, context: core.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(context.train, "on_report", lambda: ended.append(True))
    with context:
        runs.training_arguments({}, output_dir="out", use_cpu=True)
        assert ended == []
        runs.DetCallback()
    assert ended == [True]
