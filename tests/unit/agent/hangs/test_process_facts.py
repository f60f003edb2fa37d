"""What is read of processes and threads from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from det_jupyter.agent.hangs import process_facts
from det_jupyter.agent.hangs.process_facts import ThreadFacts, kernel_wait

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="there is no /proc")


def test_a_wait_for_a_file_system_of_a_program_is_one_for_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep = "print(flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", sleep], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert isinstance(kernel_wait(process.pid), str)
            monkeypatch.setattr(process_facts, "kernel_wait", lambda *_: "request_wait_answer")
            while (facts := ThreadFacts.read(process.pid, process.pid)).state == "R":
                time.sleep(0.01)
            assert facts.state == "D"
        finally:
            process.kill()


def test_a_process_that_has_ended_is_an_error() -> None:
    with pytest.raises(OSError, match="/proc"):
        ThreadFacts.read(2**22 + 1, 2**22 + 1)
