"""experiment.verify_resume(): the user's own proof that interruptions change nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from det_jupyter.errors import ConfigError, WaitTimeout
from tests.forked_python import run_python
from tests.notebook_kernel import notebook
from tests.problems import said
from tests.processes import DetHome, wait_until
from tests.trials import TRIAL_SOURCE, slow, small_config, submit

pytestmark = pytest.mark.e2e

CELL = """%%det_experiment --slots 2
entrypoint: SmallTrial
hyperparameters: {global_batch_size: 16, pause_s: 0.0}
searcher: {name: single, metric: error, max_length: {batches: 30}}
"""
TOLD = """
import json
print(json.dumps({
    "is_identical": found.is_identical, "interruptions": found.interruptions,
    "steps_completed": found.steps_completed, "tensors": found.tensors,
    "numbers": found.numbers, "repr": repr(found),
    "html": found._repr_html_(),
    "is_list_as_before": [e.id for e in det_jupyter.experiments()] == before,
    "is_newest": det_jupyter.experiments()[0].id == experiment.id,
}))
"""

# It draws from a generator that no checkpoint knows of, and begins anew with every run.
FORGETFUL_SOURCE = (
    TRIAL_SOURCE.replace("class SmallTrial", "class ForgetfulTrial")
    .replace(
        "x, y = batch\n        loss", "x, y = batch\n        x = x + self.noise(x)\n        loss"
    )
    .replace("    def build_training", "    own = None\n\n    def build_training", 1)
    + """
    def noise(self, x):
        if self.own is None:
            self.own = torch.Generator().manual_seed(3)
        return torch.randn(x.shape, generator=self.own)
"""
)


@pytest.fixture(scope="module")
def told(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what is found in a notebook of a trial that resumes exactly, and was printed."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("import det_jupyter\n%load_ext det_jupyter")
        book.check(TRIAL_SOURCE)
        book.check(CELL)
        book.check("experiment.wait()")
        book.check("before = [e.id for e in det_jupyter.experiments()]")
        printed = book.check("found = experiment.verify_resume()").text
        told: dict[str, Any] = json.loads(book.check(TOLD).text)
        return told | {"printed": printed}


def test_a_trial_that_resumes_exactly_is_found_identical_and_nothing_is_left(
    told: dict[str, Any],
) -> None:
    assert told["is_identical"], told
    assert told["interruptions"] == [["pause", 10], ["kill", 20]]
    assert told["steps_completed"] == 30
    assert told["tensors"] > 10
    assert told["numbers"] == 32  # the losses of 30 batches, their mean, and a validation
    assert told["repr"] == (
        f"identical: {told['tensors']} tensors and 32 reported numbers at batch 30, "
        "interrupted after batch 10 (paused), 20 (killed)"
    )
    assert "✓" in told["html"]
    assert told["is_list_as_before"]
    assert told["is_newest"]
    assert "interrupted" in told["printed"]


def test_mistakes_are_refused_and_a_trial_that_forgets_is_told_by_the_first_tensor_and_kept(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        """Compare in a fork, unlike in the notebook: to load torch takes seconds."""
        assert argv[1:3] == ["-P", "-m"]
        return run_python(*argv[2:], folder=tmp_path)

    monkeypatch.setattr(subprocess, "run", compare)
    config = small_config(entrypoint="ForgetfulTrial")
    experiment = submit(client, config, FORGETFUL_SOURCE)
    experiment.wait()
    with pytest.raises(ConfigError) as refused:
        experiment.verify_resume(pause_at=0, kill_at=60)
    assert said(refused.value.problems) == [
        "verify_resume: got pause_at 0, expected a batch from 1 to 59",
        "verify_resume: got kill_at 60, expected a batch from 1 to 59",
    ]
    with pytest.raises(ConfigError, match="the same batch; give two"):
        experiment.verify_resume(pause_at=5, kill_at=5)
    found = experiment.verify_resume(batches=12, pause_at=5, kill_at=9)
    assert not found
    assert found.steps_completed == 12
    lines = repr(found).splitlines()
    assert lines[0].startswith("differs first in models.0.0.weight: ")
    assert lines[1].startswith("interrupted after batch 5 (paused), 9 (killed); ")
    assert any("a random generator of the trial's own" in line for line in lines)
    for experiment_id in (found.straight_id, found.interrupted_id):
        view = client.experiment(experiment_id)
        assert view.state is State.COMPLETED
        assert view.parent_id == experiment.id
    interrupted = client.experiment(found.interrupted_id)
    assert interrupted.trials[0].restarts == 1  # the pause does not count as one


AVERAGING_SOURCE = (
    TRIAL_SOURCE.replace("class SmallTrial", "class AveragingTrial")
    .replace(
        '        self.pause_s = context.get_hparam("pause_s")\n',
        '        self.pause_s = context.get_hparam("pause_s")\n'
        "        self.ema = torch.optim.swa_utils.AveragedModel(model)\n",
    )
    .replace(
        "        self.context.step_optimizer(self.optimizer)\n",
        "        self.context.step_optimizer(self.optimizer)\n"
        "        self.ema.update_parameters(model_of(self.model))\n",
    )
    .replace(
        'return {"error": nn.functional.mse_loss(self.model(x)',
        'return {"error": nn.functional.mse_loss(self.ema.eval()(x)',
    )
    + """
def model_of(model):
    return getattr(model, "module", model)
"""
)


@pytest.mark.long  # tests/unit/pytorch/checkpoints/test_unsaved.py finds the same
def test_an_average_of_weights_that_is_not_saved_is_found_and_named(client: Client) -> None:
    experiment = submit(client, small_config(entrypoint="AveragingTrial"), AVERAGING_SOURCE)
    experiment.wait()
    (notice,) = experiment.view.trials[0].notices
    assert notice == (
        "`self.ema` (AveragedModel, 5 tensors) changes while training and is in no checkpoint, so "
        "a run that continues begins it anew: `context.wrap_model(...)` or a callback's "
        "`state_dict`"
    )
    found = experiment.verify_resume(batches=24, pause_at=5, kill_at=9, timeout=300)
    assert not found
    assert [name for name, _ in found.differences] == ["validation.error"]  # no checkpoint has it
    assert found.unsaved == (notice,)
    assert notice in repr(found)


def test_what_fails_or_takes_too_long_leaves_nothing_unless_asked(client: Client) -> None:
    experiment = submit(client, slow(0.1))
    experiment.kill()
    wait_until(lambda: experiment.state.is_terminal, "it has ended")
    before = {view.id for view in client.experiments()}
    with pytest.raises(WaitTimeout):
        experiment.verify_resume(timeout=0.5)
    assert {view.id for view in client.experiments()} == before
    with pytest.raises(WaitTimeout):
        experiment.verify_resume(timeout=0.5, keep=True)
    kept = [view for view in client.experiments() if view.id not in before]
    assert [view.name for view in kept] == ["small: straight", "small: interrupted"]
