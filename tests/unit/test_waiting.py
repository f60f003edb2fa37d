"""A test waits until nothing moves any more (tests/waiting.py)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from tests import waiting
from tests.waiting import StillError, Stillness, until, wait_until

STILL_S = 0.4


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stillness.__init__, "__defaults__", (STILL_S, 0.1))


@pytest.mark.usefixtures("impatient")
def test_a_wait_fails_when_nothing_moves_and_says_what_is_there(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with pytest.raises(StillError, match="until it ends: nothing has moved") as told:
            wait_until(lambda: sleeper.poll() is not None, "it ends")
        assert f"{sleeper.pid} sleeping: {sys.executable}" in str(told.value)
        with pytest.raises(StillError, match="until never"):
            asyncio.run(until(lambda: False, "never"))
    finally:
        sleeper.kill()
        sleeper.wait()


COMPUTES = """
import os, sys, time
if sys.argv[1] == "elsewhere" and os.fork():
    sys.exit()  # what goes on has another parent
ends = time.monotonic() + 2 * float(sys.argv[2])
while time.monotonic() < ends: pass
open("done", "w").close()
time.sleep(600)
"""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_wait_goes_on_while_a_process_of_the_test_computes(tmp_path: Path, place: str) -> None:
    environment = {**os.environ, paths.HOME_VARIABLE: str(tmp_path)}
    command = [sys.executable, "-c", COMPUTES, place, str(STILL_S)]
    started = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        wait_until((tmp_path / "done").exists, "it has computed for longer than a wait is still")
    finally:
        os.killpg(started.pid, 9)
        started.wait()


def test_a_process_moves_that_takes_more_of_a_core_than_idle_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_s, clock_s = 1.0, 0.0
    monkeypatch.setattr(waiting, "_seconds", lambda pid: taken_s)
    monkeypatch.setattr(waiting, "seconds_of_processes", lambda: [(os.getpid(), taken_s)])
    monkeypatch.setattr(time, "monotonic", lambda: clock_s)
    stillness = Stillness(patience_s=2.0, look_s=0.5)
    stillness.check("it is there")
    for clock_s in range(1, 9):  # noqa: B007  # the clock reads it
        taken_s += 0.3
        stillness.check("it computes")
    clock_s, taken_s = 9, taken_s + 0.2
    stillness.check("it is idle")
    clock_s, taken_s = 10, taken_s + 0.2
    with pytest.raises(StillError):
        stillness.check("it is idle")


TESTS = """
import subprocess, sys, threading, time
import pytest

def test_a_process():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])

def test_an_event():
    threading.Event().wait()

@pytest.mark.timeout(1)
def test_that_moves_for_ever():
    while True:
        pass
"""


def test_what_waits_without_a_limit_is_ended_by_the_timer_of_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_still.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests import waiting\n"
        "from pathlib import Path\n"
        "waiting.folders.append(Path(__file__).parent)\n"
        "waiting.PATIENCE_S, waiting.LOOK_S = 0.3, 0.2\n"
        "waiting.Stillness.__init__.__defaults__ = 0.4, 0.2\n"
        "pytest_timeout_set_timer = lambda item, settings: waiting.set_timer(item, settings)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_timeout", "-o", "timeout=100"]
    run = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True,
        env={
            **os.environ, "PYTHONPATH": str(paths_of_tests()),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )  # fmt: skip
    assert "3 failed" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count("nothing has moved for") >= 2
    assert "Timeout (>1.0s) from pytest-timeout" in run.stdout


def paths_of_tests() -> Path:
    return Path(waiting.__file__).parents[1]
