"""What a script's context is in a run of an experiment, and elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core, pytorch
from det_jupyter.contract.host.paths import HOME_VARIABLE
from tests.unit.core.run_folder import make_run, variables


@pytest.fixture
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name, value in variables(make_run(tmp_path), tmp_path).items():
        monkeypatch.setenv(name, value)
    yield
    core.set_current(None)


@pytest.mark.usefixtures("_run")
@pytest.mark.parametrize("hparams", [None, {"rate": 0.25, "own": 1}])
def test_in_a_run_it_has_what_the_experiment_gives(hparams: dict[str, Any] | None) -> None:
    with pytorch.init(hparams=hparams) as context:
        assert context.get_hparams() == (hparams or {"rate": 0.5})
        assert (context.get_experiment_id(), context.get_trial_id()) == (3, 7)
        assert context.get_trial_seed() == 11
        assert context.get_experiment_config()["name"] == "a script"
        assert context.core is core.current()
        assert context.get_tensorboard_path().parts[-3:] == ("tensorboard", "3", "7")


@pytest.mark.parametrize(
    ("exp_conf", "hparams", "expected"),
    [
        (None, {"lr": 1}, {"lr": 1}),
        ({"hyperparameters": {"lr": 2}}, None, {"lr": 2}),
        ({"hyperparameters": {"lr": 2}}, {"lr": 1}, {"lr": 1}),
    ],
)
def test_elsewhere_hyperparameters_are_those_given_or_of_the_configuration(
    tmp_path: Path, exp_conf: Any, hparams: Any, expected: dict[str, Any]
) -> None:
    given = {"hparams": hparams, "exp_conf": exp_conf, "checkpoint_storage": tmp_path}
    with pytorch.init(**given) as context:
        assert context.get_hparams() == expected


@pytest.mark.parametrize(
    ("exp_conf", "seed", "expected"),
    [
        (None, 5, 5),
        ({"reproducibility": {"experiment_seed": 3}}, None, 3),
        ({"reproducibility": {"experiment_seed": 3}}, 5, 5),
    ],
)
def test_elsewhere_the_seed_is_the_one_given_or_of_the_configuration(
    tmp_path: Path, exp_conf: Any, seed: int | None, expected: int
) -> None:
    given = {"exp_conf": exp_conf, "seed": seed, "checkpoint_storage": tmp_path}
    with pytorch.init(**given) as context:
        assert context.get_trial_seed() == expected


def test_elsewhere_each_context_has_a_seed_of_its_own_unless_one_is_given(tmp_path: Path) -> None:
    seeds = set()
    for _ in range(3):
        with pytorch.init(checkpoint_storage=tmp_path) as context:
            seeds.add(context.get_trial_seed())
    assert len(seeds) == 3
