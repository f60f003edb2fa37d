"""Stage 0: a loop that counts to a hundred. It does not use det_jupyter yet."""

import logging
import os
import time

STEPS = 100
STEP_S = float(os.environ.get("STEP_S", "0.02"))  # how long one step of "training" takes


def main(increment_by: int) -> None:
    """Increment x in every step."""
    x = 0
    for step in range(STEPS):
        x += increment_by
        time.sleep(STEP_S)
        if (step + 1) % 10 == 0:
            logging.info("x is now %d", x)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(increment_by=1)
