"""`det_jupyter.sweep`: the configuration that it makes, and problems in the terms of the call."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import det_jupyter
from det_jupyter import hp
from det_jupyter.client.submitting.drafts import Draft
from det_jupyter.contract.messages import State
from det_jupyter.errors import ConfigError, NotFound, UsageError
from det_jupyter.front.notebook.submit import from_python
from det_jupyter.front.notebook.submit.caller import Caller
from tests.problems import said
from tests.unit.view.view_samples import experiment, trial

SPACE = {"lr": hp.log(1e-5, 1e-1), "width": [32, 64]}


def train(lr: float, width: int) -> float:
    return lr * width


def by_step(lr: float, width: int) -> Iterator[float]:
    yield lr * width


def reporting(core_context: Any, hparams: dict[str, Any]) -> None: ...


class Trial: ...


def wrapped(hparams: dict[str, Any]) -> dict[str, float]:
    return {"top1": 0.5, "loss": hparams["lr"]}


@functools.wraps(wrapped)
def wrapper(hparams: dict[str, Any]) -> Any:
    return None


class Submitted:
    """What was submitted, without a master; the problems of the configuration are raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = experiment(trial(best_metric=0.5))
        self.waited: list[str] = []
        self.callers: list[Caller] = []
        self.config: dict[str, Any] = {}
        monkeypatch.setattr(from_python, "submit_draft", self._submit)

    def _submit(self, draft: Draft, caller: Caller) -> Any:
        config, problems = draft.parse(default_seed=0)
        if problems or config is None:
            raise draft.located(problems)
        self.config, self.document = config.to_document(), draft.document
        self.callers.append(caller)
        return SimpleNamespace(wait=self._wait, view=self.view)

    def _wait(self) -> State:
        self.waited.append("waited")
        return self.view.state


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Submitted:
    return Submitted(monkeypatch)


def test_a_sweep_is_a_random_search_of_the_function(submitted: Submitted) -> None:
    det_jupyter.sweep(train, SPACE, metric="loss", trials=50)
    assert submitted.document == {
        "entrypoint": "train",
        "hyperparameters": {
            "lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1},
            "width": {"type": "categorical", "vals": [32, 64]},
        },
        "searcher": {
            "name": "random",
            "metric": "loss",
            "smaller_is_better": True,
            "max_length": 1,
            "max_trials": 50,
        },
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
    }
    assert submitted.callers[0].given == {"train": train}
    assert submitted.waited == ["waited"]


def test_other_arguments_are_those_of_a_submission(submitted: Submitted) -> None:
    more: dict[str, Any] = {"searcher.max_concurrent_trials": 2}
    det_jupyter.sweep(
        train, SPACE, metric="accuracy", trials=5, slots=2, wait=False, name="widths",
        queue_anyway=True, max_restarts=1, **more,
    )  # fmt: skip
    config = submitted.config
    assert (config["name"], config["max_restarts"]) == ("widths", 1)
    assert config["resources"]["slots_per_trial"] == 2
    assert config["searcher"]["max_concurrent_trials"] == 2
    assert config["searcher"]["smaller_is_better"] is False
    assert submitted.callers[0].queue_anyway
    assert submitted.waited == []
    det_jupyter.sweep(train, SPACE, metric="accuracy", trials=5, smaller_is_better=True)
    assert submitted.config["searcher"]["smaller_is_better"] is True


@pytest.mark.parametrize(
    ("function", "given", "searcher"),
    [
        (train, {"searcher": "grid"}, {"name": "grid"}),
        (by_step, {"searcher": "asha"}, {"mode": "aggressive", "stop_once": True}),
        (Trial, {"searcher": "asha"}, {"name": "adaptive_asha", "stop_once": False}),
        (train, {"searcher": "tpe", "max_length": 1}, {"name": "optuna", "pruner": "none"}),
        (by_step, {"searcher": "tpe"}, {"name": "optuna", "sampler": "tpe", "pruner": "asha"}),
        (reporting, {"searcher": "random"}, {"name": "random"}),
    ],
)
def test_a_searcher_has_a_short_name(
    function: Any, given: dict[str, Any], searcher: dict[str, Any], submitted: Submitted
) -> None:
    trials = {} if given["searcher"] == "grid" else {"trials": 5}
    space = {"lr": hp.log(1e-5, 1e-1, count=3), "width": [32, 64]}
    det_jupyter.sweep(function, space, metric="loss", **{"max_length": 16, **trials, **given})
    found = submitted.config["searcher"]
    assert {name: found[name] for name in searcher} == searcher
    assert found["max_length"] == {"batches": given.get("max_length", 16)}


def test_a_space_is_written_as_plain_as_possible(submitted: Submitted) -> None:
    def trains(hparams: Any) -> float:
        return 0.0

    space = {
        "depth": range(2, 5),
        "size": range(0, 100, 50),
        "width": numpy.array([32, 64]),
        "shape": ((1, 2), (3, 4)),
        "heads": {8, 4},
        "optimizer": {"lr": hp.double(0, 1), "name": "sgd"},
        "batch": numpy.int64(8),
        "drop": {"type": "double", "minval": 0, "maxval": 0.5},
        "empty": None,
    }
    det_jupyter.sweep(trains, space, metric="loss", trials=2)
    assert submitted.document["hyperparameters"] == {
        "depth": {"type": "int", "minval": 2, "maxval": 4, "count": 3},
        "size": {"type": "categorical", "vals": [0, 50]},
        "width": {"type": "categorical", "vals": [32, 64]},
        "shape": {"type": "categorical", "vals": [[1, 2], [3, 4]]},
        "heads": {"type": "categorical", "vals": [4, 8]},
        "optimizer": {"lr": {"type": "double", "minval": 0, "maxval": 1}, "name": "sgd"},
        "batch": 8,
        "drop": {"type": "double", "minval": 0, "maxval": 0.5},
        "empty": None,
    }


def refused(*args: Any, **given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        det_jupyter.sweep(*args, **given)
    return said(caught.value.problems)


def test_everything_that_is_wrong_comes_at_once_in_the_terms_of_the_call(
    submitted: Submitted,
) -> None:
    def silent(lr: float, depth: int) -> None:
        print(lr, depth)

    assert refused(
        silent, {"lr": [], "dept": object(), "info": 1}, metric=3, trials=0, slots=-1,
        searcher="best", label="x", smaler_is_better=True,
    ) == [
        "train: silent requires depth, and ranks give only hyperparameters (lr, dept, info), "
        "core_context, hparams and info; give the others a default",
        "space.dept: silent has no such parameter; did you mean depth?",
        "space.info: ranks give an argument info themselves; choose another name",
        "searcher: got 'best', expected random, grid, asha or tpe",
        "train: silent returns nothing; let it return 3, or `yield` it after each step",
        "smaler_is_better: no such argument; did you mean smaller_is_better?",
        "space.lr.vals: got [], expected a list of at least one value",
        "label: unknown key; did you mean labels?",
        "slots: got -1, expected at least 0",
        "trials: got 0, expected at least 1",
        'metric: got 3, expected text; write "3"',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "given", "problems"),
    [
        (3, {}, ["train: got 3, expected a function, such as `def train(lr): ...; return loss`"]),
        (
            train,
            {"trials": None},
            ["trials: missing; say how many trials there are, such as trials=50"],
        ),
        (
            train,
            {"searcher": "asha", "max_length": 8},
            [
                "searcher: got 'asha', which compares trials while they train, but train returns "
                "only at its end; let it `yield` loss after each step, or take another searcher"
            ],
        ),
        (
            by_step,
            {"searcher": "asha"},
            ["max_length: missing; say how many values a trial yields at most, such as "
             "max_length=20"],
        ),
        (
            reporting,
            {},
            ['max_length: missing; say how long a trial trains, such as max_length={"epochs": 4}'],
        ),
        (wrapped, {"metric": "error"}, ["metric: got 'error', but wrapped returns top1, loss"]),
        (
            train,
            {"searcher": "grid"},
            [
                "trials: got 5, but a grid trains every point once; leave it out",
                "space.lr.count: missing; searcher grid needs the number of its values",
            ],
        ),
        (
            lambda lr, width: 0.5,
            {},
            ["train: got <function"],
        ),
    ],
)  # fmt: skip
def test_what_is_missing_or_does_not_fit_is_named(
    function: Any, given: dict[str, Any], problems: list[str], submitted: Submitted
) -> None:
    found = refused(function, SPACE, **{"metric": "loss", "trials": 5, **given})
    assert len(found) == len(problems)
    assert all(each.startswith(problem) for each, problem in zip(found, problems, strict=True))


def test_what_the_source_does_not_show_is_not_refused(submitted: Submitted) -> None:
    det_jupyter.sweep(wrapped, SPACE, metric="loss", trials=2)
    det_jupyter.sweep(wrapper, SPACE, metric="error", trials=2)
    assert len(submitted.callers) == 2


def test_a_space_is_a_dict(submitted: Submitted) -> None:
    (problem,) = refused(train, ["lr"], metric="loss", trials=5)
    assert problem.startswith("space: got ['lr'], expected a dict of hyperparameters by name")


@pytest.mark.parametrize("notices", [[], ["train has returned 'x', expected a number"]])
def test_a_sweep_without_a_metric_says_why(submitted: Submitted, notices: list[str]) -> None:
    submitted.view = experiment(trial(best_metric=None, notices=notices), state=State.COMPLETED)
    with pytest.raises(NotFound) as caught:
        det_jupyter.sweep(train, SPACE, metric="loss", trials=1)
    end = f": {notices[0]}" if notices else ""
    assert str(caught.value) == f"experiment 7: no trial has reported {submitted.view.metric}{end}"


def test_a_sweep_of_which_one_has_stopped_waiting_is_returned(submitted: Submitted) -> None:
    submitted.view = experiment(trial(best_metric=None), state=State.ACTIVE)
    found = det_jupyter.sweep(train, SPACE, metric="loss", trials=1)
    assert found.view is submitted.view


def test_a_call_without_a_metric_is_explained() -> None:
    with pytest.raises(UsageError, match="sweep: missing a required"):
        det_jupyter.sweep(train, SPACE)  # type: ignore[call-arg]  # what a user may forget
