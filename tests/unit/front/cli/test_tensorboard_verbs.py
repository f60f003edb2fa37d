"""`det tensorboard start --foreground`, for the view: it ends with the process that started it."""

from __future__ import annotations

import os
import subprocess

from det_jupyter.front.cli.tensorboard_verbs import wait_for


def test_waiting_ends_with_tensorboard_or_with_the_process_that_has_started_us() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert wait_for(process, parent=os.getppid() + 1) == 0  # it is not our parent any more
            assert process.poll() is None
        finally:
            process.kill()
        assert wait_for(process, parent=os.getppid()) == wait_for(process, parent=None) == -9
