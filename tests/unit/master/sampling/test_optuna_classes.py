"""Optuna's classes are found by short names, and constructed with the arguments given."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.master.sampling.optuna_classes import (
    PRUNER,
    SAMPLER,
    find_name,
    keeps_state,
    make,
)
from det_jupyter.master.sampling.samplers import quiet

optuna = pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("tpe", "TPESampler"),
        ("TPESampler", "TPESampler"),
        ("cma-es", "CmaEsSampler"),
        ("CMA_ES sampler", "CmaEsSampler"),
        ("nsga-iii", "NSGAIIISampler"),
        ("grid", None),  # `grid` is a searcher of its own
        ("base", None),
        ("", None),
    ],
)
def test_a_sampler_is_found_by_its_short_name(name: str, full: str | None) -> None:
    assert find_name(SAMPLER, name) == full


def test_a_name_means_a_class_of_its_kind() -> None:
    assert find_name(PRUNER, "median") == "MedianPruner"
    assert find_name(PRUNER, "tpe") is None
    assert find_name(SAMPLER, "median") is None


def test_only_classes_that_store_nothing_besides_trials_keep_no_state() -> None:
    with quiet:
        assert not keeps_state(make(SAMPLER, "tpe", {}))
        assert not keeps_state(make(PRUNER, "median", {}))
        assert keeps_state(make(SAMPLER, "cma-es", {}))
        assert keeps_state(make(PRUNER, "hyperband", {}))


def test_arguments_that_are_objects_are_constructed_too() -> None:
    args = {"patience": 3, "wrapped_pruner": {"name": "median", "n_warmup_steps": 9}}
    with quiet:
        pruner: Any = make(PRUNER, "patient", args)
        bare: Any = make(PRUNER, "patient", {"patience": 3, "wrapped_pruner": None})
    assert isinstance(pruner, optuna.pruners.PatientPruner)
    assert isinstance(pruner._wrapped_pruner, optuna.pruners.MedianPruner)
    assert pruner._wrapped_pruner._n_warmup_steps == 9
    assert bare._wrapped_pruner is None


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_what_a_sampler_draws_follows_from_its_seed(name: str) -> None:
    def draw(seed: int) -> float:
        with quiet:
            study = optuna.create_study(sampler=make(SAMPLER, name, {}, seed=seed))
            return float(study.ask().suggest_float("x", 0, 1))

    assert draw(3) == draw(3) != draw(4)
