"""Stage 1: the loop reports what it reaches, and how far it is."""

import logging
import os
import time

import det_jupyter as det
from det_jupyter import core

STEPS = 100
STEP_S = float(os.environ.get("STEP_S", "0.02"))


def main(context: core.Context, increment_by: int) -> None:
    """Increment x in every step; report it every ten steps, and at the end."""
    x = 0
    for step in range(STEPS):
        x += increment_by
        time.sleep(STEP_S)
        steps_completed = step + 1
        if steps_completed % 10 == 0:
            logging.info("x is now %d", x)
            context.train.report_training_metrics(steps_completed, {"x": x})
            context.train.report_progress(steps_completed / STEPS)
    context.train.report_validation_metrics(STEPS, {"x": x})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    with core.init() as context:
        main(context, increment_by=1)
