"""Submitting files as `det e create FILE FOLDER` does, and interfering with them, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.client.submission import prepare, submit
from det_jupyter.contract.messages import State
from tests.processes import wait_until


def create(client: Client, text: str, **options: Any) -> Experiment:
    """Submit an experiment and return its handle; takes the options of `prepare`."""
    return submit(client, prepare(client, text, **options))


def submit_file(client: Client, file: Path, **changes: Any) -> Experiment:
    """Submit a configuration with the folder that it is in; `changes` are laid over it."""
    text = file.read_text(encoding="utf-8")
    return create(client, text, context=file.parent, file=file, changes=changes)


def wait_for_line(experiment: Experiment, text: str, timeout_s: float = 60.0) -> None:
    """Block until a rank of the experiment's first trial has printed this text."""

    def is_printed() -> bool:
        view = experiment.view
        assert not view.state.is_terminal, f"ended early: {view.state} {view.message}"
        return bool(view.trials) and bool(experiment.trials[0].logs(search=text))

    wait_until(is_printed, f"{text!r} is printed", timeout_s)


def pause(experiment: Experiment) -> State:
    """Pause the experiment, and return its state when no trial of it holds slots any more."""
    experiment.pause()

    def is_at_rest() -> bool:
        view = experiment.view
        return view.state is State.PAUSED or view.state.is_terminal

    wait_until(is_at_rest, "the experiment has left its slots")
    return experiment.state
