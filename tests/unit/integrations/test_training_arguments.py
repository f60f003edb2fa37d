"""Arguments of a Trainer: those of its trial, names of hyperparameters, and what is refused.

The callback that refuses them is tested in test_transformers.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.config import parse_config
from det_jupyter.errors import ConfigError, DetError
from det_jupyter.front.notebook.submit.checks import find_hparam_problems
from tests.unit.integrations.contexts import new_context, runs_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    yield from runs_of("transformers")


def test_hyperparameters_are_arguments_by_name(runs: Any, tmp_path: Path) -> None:
    made = runs.training_arguments({"learning_rate": 0.5}, max_steps=7, output_dir=str(tmp_path))
    assert (made.learning_rate, made.max_steps) == (0.5, 7)
    assert not made.use_cpu  # as without a trial
    with pytest.raises(ConfigError) as raised:  # ends a trial for good
        runs.training_arguments({"learning_rat": 0.5, "width": 3, "seed": 1}, seed=2, mine=3)
    assert str(raised.value).splitlines() == [
        "hyperparameters.learning_rat: TrainingArguments has no such argument; did you mean "
        "learning_rate? If it is yours, take it out before: hparams.pop('learning_rat')",
        "training_arguments.mine: TrainingArguments has no such argument",
        "hyperparameters.seed: is an argument of training_arguments(...) too; give one of them",
        "hyperparameters.width: TrainingArguments has no such argument; if it is yours, take it "
        "out before: hparams.pop('width')",
    ]


def test_arguments_of_a_trial_are_its_own_unless_they_are_given(runs: Any, tmp_path: Path) -> None:
    with new_context(tmp_path):
        made = runs.training_arguments({}, output_dir=str(tmp_path))
        given = runs.training_arguments({"seed": 9}, output_dir=str(tmp_path), disable_tqdm=False)
    assert (made.seed, made.use_cpu, made.disable_tqdm) == (5, True, True)
    assert made.restore_callback_states_from_checkpoint
    assert (given.seed, given.disable_tqdm) == (9, False)


def test_several_gpus_in_a_process_are_refused(runs: Any) -> None:
    arguments = SimpleNamespace(
        world_size=1, device=None, n_gpu=2, save_strategy="no", save_only_model=False
    )
    with pytest.raises(DetError, match=r"2 GPUs in one process; .*\{slots_per_trial: 2\}"):
        runs.check_arguments(arguments, 1)
    arguments.n_gpu = 1
    runs.check_arguments(arguments, 1)


def test_hyperparameters_of_other_names_are_refused_at_submission(runs: Any) -> None:
    given = {"learning_rat": 0.5, "width": 3, "depth": 2, "max_steps": 7}
    document = {
        "entrypoint": "finetune",
        "hyperparameters": given,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 3}},
        "reproducibility": {"experiment_seed": 1},
    }
    config = parse_config(document)
    problems = find_hparam_problems(config, vars(runs))
    assert [each.path.partition(".")[2] for each in problems] == [
        "depth", "learning_rat", "max_steps",
    ]  # fmt: skip
    assert "did you mean learning_rate?" in str(problems[1])
    for unclear in (runs.trainer, runs.changed, runs.with_its_own_helper):
        assert find_hparam_problems(config, {"finetune": unclear}) == []
