"""Optuna, queried as by the master; a restart changes no answer."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.errors import ConfigError
from det_jupyter.master.sampling.optuna_study import TrialHistory
from det_jupyter.master.sampling.samplers import Samplers, check_sampler, find_problems
from det_jupyter.searcher import ExitReason
from det_jupyter.searcher.optuna import OptunaSearcher
from tests.problems import said
from tests.unit.searcher.searcher_world import World, make_config

optuna = pytest.importorskip("optuna")

SPACE: dict[str, Any] = {
    "x": {"type": "double", "minval": -5, "maxval": 5},
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
    "net": {
        "depth": {"type": "int", "minval": 1, "maxval": 8},
        "act": {"type": "categorical", "vals": ["relu", None, [1, 2]]},
    },
    "width": 64,
}
NUMERIC: dict[str, Any] = {"x": SPACE["x"], "lr": SPACE["lr"]}


def error_of(hparams: dict[str, Any]) -> float:
    """Return a function of the hyperparameters that is 0 at best."""
    error: float = (hparams["x"] - 1) ** 2 + abs(math.log10(hparams["lr"]) + 2)
    if "net" in hparams:
        error += abs(hparams["net"]["depth"] - 3) + (hparams["net"]["act"] is not None)
    return error


def make_document(space: dict[str, Any] = SPACE, *, seed: int = 7, **searcher: Any) -> Any:
    """Return the effective configuration of an experiment."""
    fixed = {"name": "optuna", "metric": "error", "max_length": {"batches": 9}, "max_trials": 99}
    return {
        "searcher": fixed | searcher,
        "hyperparameters": space,
        "reproducibility": {"experiment_seed": seed},
    }


class Searched:
    """The trials of a search, and a master that queries samplers about them."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.history: list[TrialHistory] = []
        self.samplers = Samplers()
        self.clock = 0.0

    def restart(self) -> None:
        self.samplers = Samplers()

    def sample(self) -> dict[str, Any]:
        """Sample one more trial, in the moment in which another one has ended."""
        index = len(self.history)
        answer = self.samplers.sample(1, self.config, index, self.history)
        hparams: dict[str, Any] = json.loads(json.dumps(answer))  # it is stored
        self.history.append(
            TrialHistory(index=index, hparams=hparams, state="running", created_at=self.clock)
        )
        return hparams

    def report(self, index: int, step: int, metric: float) -> None:
        """Report a validation of a trial."""
        past = self.history[index]
        reports = [*past.reports, (step, metric)]
        self.history[index] = replace(past, reports=reports, value=metric)

    def end(self, index: int, state: Any = "complete") -> None:
        """End a trial."""
        self.clock += 1
        self.history[index] = replace(self.history[index], state=state, ended_at=self.clock)

    def judge(self, index: int) -> bool:
        """Return whether the pruner ends a trial."""
        return self.samplers.judge(1, self.config, index, self.history)


def run(
    config: dict[str, Any], num_trials: int, *, restarts: Collection[int] = (), concurrent: int = 3
) -> list[dict[str, Any]]:
    """Return the samples of a search, some of whose trials fail, are pruned, or diverge."""
    searched = Searched(config)
    for index in range(num_trials):
        running = [past.index for past in searched.history if past.state == "running"]
        if len(running) == concurrent:
            over = running[index * 7 % concurrent]  # not in the order of their start
            error = math.nan if index % 11 == 10 else error_of(searched.history[over].hparams)
            searched.report(over, 1, error + 1)
            searched.report(over, 9, error)
            searched.end(over, {4: "failed", 6: "pruned"}.get(index % 9, "complete"))
        if index in restarts:
            searched.restart()
        searched.sample()
    return [past.hparams for past in searched.history]


# Samples


def test_a_sample_is_in_the_space() -> None:
    for hparams in run(make_document(), 20):
        assert hparams.keys() == SPACE.keys()
        assert -5 <= hparams["x"] <= 5
        assert 1e-4 <= hparams["lr"] <= 1
        assert hparams["net"]["depth"] in range(1, 9)
        assert isinstance(hparams["net"]["depth"], int)
        assert hparams["net"]["act"] in ("relu", None, [1, 2])
        assert hparams["width"] == 64


def test_a_space_without_choice_is_sampled_too() -> None:
    assert run(make_document({"width": 64, "net": {}}), 3) == [{"width": 64, "net": {}}] * 3


def test_tpe_finds_better_hyperparameters_than_chance_with_the_same_budget() -> None:
    def best(sampler: str, seed: int) -> float:
        sampled = run(make_document(sampler=sampler, seed=seed), 40, concurrent=1)
        return min(error_of(hparams) for hparams in sampled)

    tpe, chance = [sum(best(name, seed) for seed in range(2)) for name in ("tpe", "random")]
    assert tpe < chance / 2


def test_a_larger_metric_is_better_if_the_searcher_says_so() -> None:
    searched = Searched(make_document(NUMERIC, smaller_is_better=False))
    for index in range(40):
        hparams = searched.sample()
        searched.report(index, 9, -error_of(hparams))
        searched.end(index)
    first, last = [
        sum(error_of(past.hparams) for past in part)
        for part in (searched.history[:10], searched.history[-10:])
    ]
    assert last < first / 2


def test_another_seed_gives_other_samples() -> None:
    assert run(make_document(seed=1), 3) != run(make_document(seed=2), 3)
    assert run(make_document(seed=1), 3) == run(make_document(seed=1), 3)


KNOWS_ALL_WORK = pytest.mark.skipif(
    int(optuna.__version__.split(".")[0]) < 5, reason="its GPSampler looks at no running trials"
)


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=KNOWS_ALL_WORK)])
def test_trials_at_work_are_known_to_the_sampler(sampler: str) -> None:
    """Otherwise 4 trials that start together would be nearly the same."""
    searched = Searched(
        make_document(NUMERIC, sampler=sampler, sampler_args={"n_startup_trials": 10})
    )
    for index in range(10):
        hparams = searched.sample()
        searched.report(index, 9, error_of(hparams))
        searched.end(index)
    alone = searched.sample()
    second = searched.sample()
    searched.history.pop()
    searched.end(10, "failed")  # a failed trial does not count: as if there were no trial 10
    searched.restart()
    assert searched.sample() != second
    assert alone != second


def test_a_trial_that_was_stopped_early_counts_and_one_that_failed_does_not() -> None:
    def after(state: str, num_at_random: int = 3) -> dict[str, Any]:
        args = {"n_startup_trials": num_at_random}
        searched = Searched(make_document(NUMERIC, sampler_args=args))
        for index in range(6):
            searched.report(index, 9, error_of(searched.sample()))
            searched.end(index, state)
        return searched.sample()

    assert after("failed") == after("complete", num_at_random=99) != after("pruned")


# Restarts

SAMPLERS: dict[str, dict[str, Any]] = {
    "tpe": {},
    "TPESampler": {"multivariate": False, "constant_liar": False, "n_startup_trials": 5},
    "random": {},
    "qmc": {"scramble": True},
    "cma-es": {},
    "CmaEsSampler": {"use_separable_cma": True, "popsize": 4},
    "nsgaii": {"population_size": 4, "crossover": "SBXCrossover"},
    "nsgaiii": {"population_size": 4},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_restart_in_the_middle_changes_no_sample(sampler: str) -> None:
    config = make_document(sampler=sampler, sampler_args=SAMPLERS[sampler])
    assert run(config, 24, restarts={1, 13, 14, 23}) == run(config, 24)


def test_a_trial_counts_with_the_hyperparameters_that_it_has() -> None:
    """Also where an earlier version of Optuna has sampled others."""
    args = {"population_size": 4, "mutation_prob": 0.0}
    searched = Searched(make_document(NUMERIC, sampler="nsgaii", sampler_args=args))
    for index in range(4):
        searched.sample()
        searched.history[index].hparams.update(x=3.25, lr=0.01 * (index + 1))
        searched.report(index, 9, 1.0)
        searched.end(index)
    searched.restart()
    assert searched.sample()["x"] == 3.25


def test_a_restart_changes_no_sample_of_a_gaussian_process() -> None:
    config = make_document(NUMERIC, sampler="gp", sampler_args={"n_startup_trials": 4})
    assert run(config, 10, restarts={5, 9}) == run(config, 10)


def test_an_answer_that_was_lost_is_given_again() -> None:
    searched = Searched(make_document())
    searched.sample()
    lost = searched.sample()
    searched.history.pop()
    assert searched.sample() == lost


def test_a_question_that_was_answered_has_the_same_answer() -> None:
    searched = Searched(make_document())
    first = searched.sample()
    searched.sample()
    assert searched.samplers.sample(1, searched.config, 0, searched.history) == first


def test_studies_that_are_not_in_memory_any_more_are_made_anew() -> None:
    searched = Searched(make_document())
    first = searched.sample()
    for experiment_id in range(2, 12):
        searched.samplers.sample(experiment_id, searched.config, 0, [])
    second = searched.sample()
    again = Searched(make_document())
    assert [again.sample(), again.sample()] == [first, second]


def test_after_an_error_the_study_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise FloatingPointError

    searched, undisturbed = Searched(make_document()), Searched(make_document())
    searched.sample()
    with monkeypatch.context() as patch:
        patch.setattr(optuna.trial.Trial, "_suggest", fail)  # the trial is in the study by then
        with pytest.raises(FloatingPointError):
            searched.sample()
    undisturbed.sample()
    assert searched.sample() == undisturbed.sample()


@pytest.mark.parametrize("sampler", ["tpe", "cma-es", "qmc"])
def test_in_a_narrowed_space_only_what_is_in_it_is_known(sampler: str) -> None:
    searched = Searched(make_document(NUMERIC, sampler=sampler))
    for index in range(12):
        searched.sample()
        searched.report(index, 9, 0.5)
        searched.end(index)
    narrow = {"type": "double", "minval": 0, "maxval": 1}
    searched.config = make_document(NUMERIC | {"x": narrow}, sampler=sampler)
    narrowed = [searched.sample()["x"] for _ in range(8)]
    assert all(0 <= x <= 1 for x in narrowed)
    assert len(set(narrowed)) == 8


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cma-es", "nsgaii"])
@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_a_metric_that_is_no_number_is_the_worst_and_stops_nothing(
    sampler: str, smaller_is_better: bool
) -> None:
    arguments = {"n_startup_trials": 6} if sampler == "gp" else {}  # it is slow with more
    searched = Searched(
        make_document(
            NUMERIC, sampler=sampler, sampler_args=arguments, smaller_is_better=smaller_is_better
        )
    )
    for index in range(8 if sampler == "gp" else 14):
        searched.sample()
        if index % 3:
            searched.report(index, 9, [math.nan, math.inf, 0.5, -math.inf][index % 4])
        searched.end(index)
    assert searched.sample().keys() == NUMERIC.keys()


# Pruners


def judged(pruner: str, curves: list[list[float]], **args: Any) -> list[list[bool]]:
    """Return the decisions of the pruner at each report, one trial after another."""
    searched = Searched(make_document(NUMERIC, pruner=pruner, pruner_args=args))
    answers: list[list[bool]] = []
    for index, curve in enumerate(curves):
        searched.sample()
        answers.append([])
        for step, metric in enumerate(curve, 1):
            searched.report(index, step, metric)
            answers[-1].append(searched.judge(index))
            if answers[-1][-1]:
                break
        searched.end(index, "pruned" if answers[-1][-1] else "complete")
    return answers


def test_the_median_pruner_ends_what_is_worse_than_the_median() -> None:
    curves = [[3.0, 2.0], [4.0, 3.0], [5.0, 4.0], [4.5, 1.0], [3.5, 9.0], [math.nan]]
    assert judged("MedianPruner", curves, n_startup_trials=3) == [
        [False, False], [False, False], [False, False], [True], [False, True], [True],
    ]  # fmt: skip


def test_pruners_may_hold_pruners() -> None:
    args = {"patience": 1, "wrapped_pruner": {"name": "threshold", "upper": 1.0}}
    assert judged("patient", [[2.0, 3.0, 4.0], [2.0, 1.5, 0.5]], **args) == [
        [False, False, True], [False, False, False],
    ]  # fmt: skip


def test_successive_halving_goes_by_its_rungs() -> None:
    args = {"min_resource": 1, "reduction_factor": 2}
    assert judged("successive_halving", [[1.0, 1.0], [2.0], [0.5, 0.9]], **args) == [
        [False, False], [True], [False, False],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pruner", "args"),
    [
        ("median", {"n_startup_trials": 2}),
        ("successive_halving", {"min_resource": 1, "reduction_factor": 2}),
        ("hyperband", {"min_resource": 1, "max_resource": 9, "reduction_factor": 3}),
    ],
)
def test_a_restart_changes_no_decision_about_trials_one_after_another(
    pruner: str, args: dict[str, Any]
) -> None:
    def answers(*, restarts: bool) -> list[bool]:
        searched = Searched(make_document(NUMERIC, pruner=pruner, pruner_args=args))
        found = []
        for index in range(8):
            searched.sample()
            for step in (1, 3, 9):
                searched.report(index, step, (index * 5 % 8) + 1 / step)
                if restarts:
                    searched.restart()
                found.append(searched.judge(index))
                if found[-1]:
                    break
            searched.end(index, "pruned" if found[-1] else "complete")
        return found

    assert answers(restarts=True) == answers(restarts=False)
    assert True in answers(restarts=False)


def test_a_trial_that_was_set_back_is_judged_by_what_it_reports_now() -> None:
    searched = Searched(make_document(NUMERIC, pruner="threshold", pruner_args={"upper": 1.0}))
    searched.sample()
    searched.report(0, 5, 9.0)
    assert searched.judge(0)
    searched.history[0] = replace(searched.history[0], reports=[(5, 0.5)])
    assert not searched.judge(0)
    searched.end(0, "failed")
    assert not searched.judge(0)


# A whole search


class Consulted(World):
    """A world whose queries Optuna answers, after all actions of one moment."""

    def __init__(self, config: Any, error: Callable[[dict[str, Any], int], float]) -> None:
        self.samplers = Samplers()
        self.error = error
        self.exits: dict[int, ExitReason] = {}
        super().__init__(config)

    def history(self) -> list[TrialHistory]:
        """Return the histories of the trials."""
        return [
            TrialHistory(
                index=create.index,
                hparams=create.hparams,
                state=self._state(create.index),
                value=self.metric(create.index) if trained else None,
                reports=[(trained, self.metric(create.index))] if trained else [],
            )
            for create in self.created
            for trained in [self.trained[create.index]]
        ]

    def _state(self, index: int) -> Any:
        if index not in self.over:
            return "running"
        return "pruned" if self.search.was_stopped(index) else "complete"

    def metric(self, index: int) -> float:
        return self.error(self.created[index].hparams, self.trained[index])

    def run_to_the_end(self) -> list[float]:
        """Return the metrics of the trials that trained to the end."""
        document = self.config.model_dump(mode="json")
        while not self.is_shut:
            for question in self.search.pending():
                index = question.index  # type: ignore[union-attr]  # none of them is a Shutdown
                hparams = self.samplers.sample(1, document, index, self.history())
                self.tell(lambda search, i=index, h=hparams: search.on_sampled(i, h))  # type: ignore[misc]  # mypy infers no lambda with defaults
            index = next(iter(self.targets))
            self.trained[index] = self.targets[index].length.amount
            self.reach(index, self.metric(index))
            self.end_closed()
        lengths = self.trained.values()
        return [
            self.metric(index) for index in self.trained if self.trained[index] == max(lengths)
        ]


def test_a_search_with_asha_and_tpe_runs_to_its_end_and_learns() -> None:
    config = make_config(
        NUMERIC, name="optuna", max_trials=60, max_length=9, divisor=3, max_concurrent_trials=4
    )
    world = Consulted(config, lambda hparams, trained: error_of(hparams) + 1 / trained)
    finals = world.run_to_the_end()
    assert len(world.created) == 60
    assert min(finals) < 0.5
    assert sum(world.trained.values()) < 60 * 9 / 2


# Refused configurations


def problems_of(space: dict[str, Any] = SPACE, **searcher: Any) -> list[str]:
    parsed = OptunaSearcher.model_validate(make_document(space, **searcher)["searcher"])
    return said(find_problems(parsed, space))


@pytest.mark.parametrize(
    "sampler",
    ["TPESampler", "tpe", "cmaes", "CMA-ES", "gp", "random", "qmc", "nsgaii", "NSGAIIISampler"],
)
def test_samplers_have_long_and_short_names(sampler: str) -> None:
    assert problems_of(sampler=sampler) == []


@pytest.mark.parametrize("pruner", ["asha", "none", "median", "NopPruner", "hyperband"])
def test_pruners_have_long_and_short_names(pruner: str) -> None:
    assert problems_of(pruner=pruner) == []


@pytest.mark.parametrize(
    ("searcher", "problem"),
    [
        ({"sampler": "TPESampleer"},
         "searcher.sampler: got 'TPESampleer', expected the name of a sampler of Optuna; "
         "did you mean TPESampler?"),
        ({"sampler": "cmaess"},
         "searcher.sampler: got 'cmaess', expected the name of a sampler of Optuna; "
         "did you mean CmaEsSampler?"),
        ({"sampler": "GridSampler"},
         "searcher.sampler: got 'GridSampler', which has no use here: searcher `grid` trains "
         "every point of a grid"),
        ({"sampler_args": {"multivariat": True}},
         "searcher.sampler_args.multivariat: TPESampler does not take it; "
         "did you mean multivariate?"),
        ({"sampler": "random", "sampler_args": {"sed": 3}},  # of no use if it were right
         "searcher.sampler_args.sed: RandomSampler does not take it; expected nothing"),
        ({"sampler_args": {"seed": 3}},
         "searcher.sampler_args.seed: follows from reproducibility.experiment_seed; remove it"),
        ({"sampler_args": {"gamma": "default"}},
         "searcher.sampler_args.gamma: takes a function, which a configuration cannot hold; "
         "remove it"),
        ({"sampler_args": {"n_startup_trials": "ten"}},
         "searcher.sampler_args: TPESampler refuses: TypeError: '<' not supported between "
         "instances of 'int' and 'str'"),
        ({"sampler": "nsgaii", "sampler_args": {"population_size": 1}},
         "searcher.sampler_args: nsgaii refuses: ValueError: `population_size` must be greater "
         "than or equal to 2."),
        ({"sampler": "nsgaii", "sampler_args": {"crossover": "SBX"}}, None),
        ({"sampler": "nsgaii", "sampler_args": {"crossover": {"name": "SBX", "etta": 2}}},
         "searcher.sampler_args.crossover.etta: SBXCrossover does not take it; "
         "did you mean eta?"),
        ({"sampler": "cma-es", "sampler_args": {"independent_sampler": "rnd"}},
         "searcher.sampler_args.independent_sampler: got 'rnd', expected the name of a sampler of "
         "Optuna; did you mean RandomSampler?"),
        ({"pruner": "MedianPrunner"},
         "searcher.pruner: got 'MedianPrunner', expected asha, none or the name of a pruner of "
         "Optuna; did you mean MedianPruner?"),
        ({"pruner": "ash"},
         "searcher.pruner: got 'ash', expected asha, none or the name of a pruner of Optuna; "
         "did you mean asha?"),
        ({"pruner": "patient", "pruner_args": {"wrapped_pruner": None}},
         "searcher.pruner_args.patience: missing; PatientPruner needs it"),
        ({"pruner": "threshold"},
         "searcher.pruner_args: threshold refuses: TypeError: Either lower or upper must be "
         "specified."),
        ({"pruner": "median", "pruner_args": {"n_startup_trials": "x"}}, ...),
        ({"pruner": "asha", "pruner_args": {"min_resource": 1}},
         "searcher.pruner_args: asha has num_rungs and divisor instead"),
        ({"pruner": "none", "pruner_args": {"min_resource": 1}},
         "searcher.pruner_args: there is no pruner to take them; remove them"),
    ],
)  # fmt: skip
def test_what_optuna_would_not_do_is_said_at_submission(
    searcher: dict[str, Any], problem: Any
) -> None:
    problems = problems_of(**searcher)
    if problem is None:
        assert problems == []
    elif problem is ...:
        assert len(problems) == 1
        assert problems[0].startswith("searcher.pruner_args: median refuses: TypeError")
    else:
        assert problems == [problem]


def test_what_fails_only_after_ten_trials_at_random_is_said_too() -> None:
    (problem,) = problems_of(sampler_args={"n_ei_candidates": 0})
    assert problem.startswith("searcher.sampler_args: TPESampler refuses: ")


def test_a_configuration_is_refused_if_optuna_refuses_it() -> None:
    checked = [
        parse_config(make_document() | {"entrypoint": "Trial", "searcher": searcher})
        for searcher in (
            make_document()["searcher"],
            make_document(sampler="tpf")["searcher"],
            {"name": "single", "metric": "error", "max_length": {"batches": 9}},
        )
    ]
    for config in (checked[0], checked[2]):
        asyncio.run(check_sampler(config))
    with pytest.raises(ConfigError, match="did you mean TPESampler"):
        asyncio.run(check_sampler(checked[1]))


def test_a_sampler_that_cannot_take_the_space_says_so() -> None:
    (problem,) = problems_of(sampler="BruteForceSampler")
    assert problem.startswith("searcher.sampler_args: BruteForceSampler refuses: ValueError")
    space = {"n": {"type": "int", "minval": 1, "maxval": 20}}
    assert problems_of(space, sampler="BruteForceSampler") == []


def test_all_problems_are_told_at_once() -> None:
    problems = problems_of(sampler="tpe", sampler_args={"a": 1, "seed": 2}, pruner="nobody")
    assert [problem.split(":")[0] for problem in problems] == [
        "searcher.sampler_args.a", "searcher.sampler_args.seed", "searcher.pruner",
    ]  # fmt: skip


@pytest.fixture
def without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)


@pytest.mark.usefixtures("without_optuna")
def test_without_optuna_the_refusal_says_what_to_install_and_where() -> None:
    assert problems_of(sampler="nobody") == [
        "searcher.name: got 'optuna', which needs the package optuna where the master runs "
        f"({sys.executable}); pip install 'det-jupyter[optuna]' there, and submit again"
    ]


def test_a_sampler_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    assert problems_of(sampler="cma-es") == [
        "searcher.sampler: CmaEsSampler needs the package cmaes where the master runs "
        f"({sys.executable}); pip install 'det-jupyter[optuna]' there, and submit again"
    ]


# Suppressed output


def test_optuna_is_silent_while_it_is_asked_and_as_it_was_afterwards(
    capfd: pytest.CaptureFixture[str],
) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    filters = list(warnings.filters)
    args = {"use_separable_cma": True, "with_margin": False, "consider_pruned_trials": True}
    run(make_document(sampler="cma-es", sampler_args=args), 20)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert warnings.filters == filters


def test_a_check_that_ends_in_the_middle_of_a_question_leaves_it_silent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    filters = list(warnings.filters)
    sample = optuna.samplers.RandomSampler.infer_relative_search_space

    def check_and_sample(*args: Any) -> Any:
        monkeypatch.setattr(optuna.samplers.RandomSampler, "infer_relative_search_space", sample)
        with ThreadPoolExecutor() as pool:
            assert pool.submit(problems_of, sampler="random").result() == []
        warnings.warn("nobody hears this", UserWarning, stacklevel=2)
        optuna.logging.get_logger("optuna").warning("nor this")
        return sample(*args)

    monkeypatch.setattr(
        optuna.samplers.RandomSampler, "infer_relative_search_space", check_and_sample
    )
    Searched(make_document(sampler="random")).sample()
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert warnings.filters == filters
