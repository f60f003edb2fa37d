"""Submits files as `det e create FILE FOLDER` does, and disturbs their experiments, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.client.submitting.submission import prepare, submit
from det_jupyter.contract.messages import State
from tests.processes import wait_until
from tests.trials import assert_goes_on


def create(client: Client, text: str, **options: Any) -> Experiment:
    """Submit an experiment and return its handle; `options` as in `prepare`."""
    return submit(client, prepare(client, text, **options))


def submit_file(client: Client, file: Path, **changes: Any) -> Experiment:
    """Submit a configuration with its folder; `changes` replace values of it."""
    text = file.read_text(encoding="utf-8")
    return create(client, text, context=file.parent, file=file, changes=changes)


def wait_for_line(experiment: Experiment, text: str) -> None:
    """Block until a rank of the experiment's first trial has printed this text."""

    def is_printed() -> bool:
        trials = assert_goes_on(experiment).trials
        return bool(trials) and bool(experiment.trials[0].logs(search=text))

    wait_until(is_printed, f"{text!r} is printed")


def pause(experiment: Experiment) -> State:
    """Pause the experiment; return its state when none of its trials holds slots any more."""
    experiment.pause()

    def is_at_rest() -> bool:
        view = experiment.view
        return view.state is State.PAUSED or view.state.is_terminal

    wait_until(is_at_rest, "the experiment has left its slots")
    return experiment.state


def ends_as_undisturbed(experiment: Experiment, *, restarts: int = 1) -> list[str]:
    """Wait for a trial with so many restarts; return its two ranks' output after `alone:`.

    The output after `disturbed:`, which the ranks print at the end of a training that was paused
    or killed, must be the same.
    """
    assert experiment.wait() == State.COMPLETED
    (trial,) = experiment.view.trials
    assert trial.restarts == restarts
    lines = [line.text for line in experiment.logs(tail=None)]
    alone, disturbed = (
        sorted(text.split(name)[1] for text in lines if name in text)
        for name in ("alone:", "disturbed:")
    )
    assert len(alone) == 2
    assert disturbed == alone
    return alone
