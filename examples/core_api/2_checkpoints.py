"""Stage 2: the loop can be paused, and goes on where it was."""

import json
import logging
import os
import time
from pathlib import Path

import det_jupyter as det
from det_jupyter import core

STEPS = 100
STEP_S = float(os.environ.get("STEP_S", "0.02"))


def save(folder: Path, x: int, steps_completed: int, trial_id: int) -> None:
    """Write everything that the loop needs to go on."""
    state = {"x": x, "steps_completed": steps_completed, "trial_id": trial_id}
    (folder / "state.json").write_text(json.dumps(state))


def load(folder: Path, trial_id: int) -> tuple[int, int]:
    """Return x, and the steps that this trial has done already.

    The same trial was paused, or has failed: it goes on. Another trial's checkpoint is where a
    new one starts from: it has x of that one, and all of its own steps ahead.
    """
    state = json.loads((folder / "state.json").read_text())
    if state["trial_id"] == trial_id:
        return state["x"], state["steps_completed"]
    return state["x"], 0


def main(context: core.Context, latest: str | None, trial_id: int, increment_by: int) -> None:
    """Increment x in every step; save it every ten, and leave there if that is asked for."""
    x, first = 0, 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as folder:
            x, first = load(folder, trial_id)
    saved_at = first
    for step in range(first, STEPS):
        x += increment_by
        time.sleep(STEP_S)
        steps_completed = step + 1
        if steps_completed % 10 == 0:
            logging.info("x is now %d", x)
            context.train.report_training_metrics(steps_completed, {"x": x})
            context.train.report_progress(steps_completed / STEPS)
            with context.checkpoint.store_path({"steps_completed": steps_completed}) as (to, _):
                save(to, x, steps_completed, trial_id)
            saved_at = steps_completed
            if context.preempt.should_preempt():
                return  # the next run of this trial finds what was saved
    context.train.report_validation_metrics(STEPS, {"x": x})
    if saved_at != STEPS:  # the last steps, if STEPS is no multiple of ten
        with context.checkpoint.store_path({"steps_completed": STEPS}) as (to, _):
            save(to, x, STEPS, trial_id)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    assert info is not None, "this stage needs an experiment: det e create 2_checkpoints.yaml ."
    with core.init() as context:
        main(context, info.latest_checkpoint, info.trial.trial_id, increment_by=1)
