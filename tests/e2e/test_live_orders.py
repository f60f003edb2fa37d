"""A trial that trains is profiled and changed, from a handle, a line and the live view."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.answers.answering import answer
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.front.notebook.complete.magic_parsers import det_parser
from det_jupyter.front.verbs.grammar import Call, parse
from tests.processes import wait_until
from tests.trials import LONG, slow, submit, wait_for_steps

pytestmark = pytest.mark.e2e

FUNCTION = """
import time
from det_jupyter import core


def count():
    context = core.init()
    for step in range(1, 100_000):
        time.sleep(0.02)
        context.train.report_training_metrics(step, {"loss": 1.0})
        if context.preempt.should_preempt():
            return
"""


def typed(client: Client, line: str) -> str:
    """Return what `%det` prints for a line."""
    options = parse(det_parser(), line)
    said = options.verb.run(
        Call(client=client, options=options, experiment=partial(Experiment, client))
    )
    assert isinstance(said, str)
    return said


def tags(folder: Path) -> set[str]:
    """Return the tags that TensorBoard finds."""
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # has no stubs
        EventAccumulator,
    )

    found: Any = EventAccumulator(str(folder))
    found.Reload()
    return set(found.Tags()["scalars"])


def test_a_trial_is_profiled_and_changed_while_it_trains(client: Client, tmp_path: Path) -> None:
    long = slow(0.05, searcher=LONG)
    experiment = submit(client, long)
    wait_for_steps(experiment, 3)
    trial = experiment.trial
    traces = trial.profile(steps=2, ranks=[0, 1])
    assert [(trace.rank, len(trace.batches)) for trace in traces] == [(0, 2), (1, 2)]
    assert traces[0].batches == traces[1].batches
    assert all(trace.path and trace.path.stat().st_size == trace.size_bytes for trace in traces)
    assert "Open with https://ui.perfetto.dev" in repr(traces)
    assert repr(trial.profiles()) == repr([traces])
    assert trial.ranks[1].profile(steps=1).rank == 1

    made = trial.change(lr_factor=0.5)
    assert made is not None
    assert made.view.text == "lr 0.01 → 0.005"
    assert made.steps_completed
    said = typed(client, f"trial set {trial.id} --lr 0.02 --min-validation-period 7 --priority 9")
    assert said.startswith(f"Trial {trial.id}: lr 0.005 → 0.02, min_validation_period 20 batches")
    assert experiment.view.priority == 9
    with pytest.raises(Conflict, match=r"optimizer: got 3, expected a number from 0 to 0"):
        trial.change(lr_factor=2.0, optimizer=3)
    with pytest.raises(ConfigError, match=r"lr: got -1, expected a number above 0"):
        trial.change(lr=-1)
    with pytest.raises(ConfigError, match=r"got lr and lr_factor, expected one of them"):
        trial.change(lr=1, lr_factor=1)
    assert trial.changes()[0].view.text == "lr 0.01 → 0.005"

    asked = {"type": "profile", "request": 1, "trial_id": trial.id, "steps": 1, "ranks": [1]}
    told = answer(client, experiment.id, asked)
    assert (told["error"], told["traces"][0]["rank"]) == ("", 1)
    assert Path(told["path"]).stat().st_size == told["size_bytes"]
    asked = {"type": "change", "request": 2, "trial_id": trial.id, "changes": {"lr": 0.5}}
    assert answer(client, experiment.id, asked)["text"].startswith("lr 0.02 → 0.5, from batch ")
    told = answer(client, experiment.id, asked | {"changes": {"momentum": 1}})
    assert "got 'momentum', expected some of lr" in told["error"]

    files = experiment.tensorboard(tmp_path)
    files.stop()
    run = tmp_path / f"trial-{trial.id}"
    assert "batches/loss" in tags(run)
    assert {"timings/forward", "system/memory_rss"} <= tags(run / "rank-1")
    assert "system/memory_free" in tags(run / "host")

    folder = Path(traces[0].view.path).parents[1]
    assert folder.name == str(experiment.id)
    assert experiment.pause(timeout=None) == "PAUSED"
    with pytest.raises(Conflict, match=r"cannot be profiled: it is paused"):
        trial.profile()
    with pytest.raises(Conflict, match=r"is paused and cannot be changed"):
        trial.change(lr=1)
    experiment.kill()
    experiment.wait()
    experiment.delete()

    def is_gone() -> bool:
        try:
            return not experiment.view
        except NotFound:
            return True

    wait_until(is_gone, "it is deleted")
    assert not folder.exists()


def test_a_function_without_our_loop_takes_no_orders_and_says_so(client: Client) -> None:
    config = slow(0.0, name="counting", entrypoint="count", resources={"slots_per_trial": 1})
    experiment = submit(client, config, FUNCTION)
    wait_for_steps(experiment, 1)
    with pytest.raises(Conflict, match=r"count is a function; only the loop of pytorch.Trainer"):
        experiment.trial.profile(timeout=0.5)
    assert experiment.state == "ACTIVE", "it takes as long as that timeout, not as the trial"
    experiment.cancel()
    experiment.wait()
    (traces,) = experiment.trial.profiles()
    assert "the run ended before the trace was written" in repr(traces)
