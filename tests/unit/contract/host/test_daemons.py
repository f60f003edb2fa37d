"""How long the logs of our programs get."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from det_jupyter.agent.starting.zygote_process import start_zygote
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.daemons import PrivateLog, spawn_master, trim_output
from det_jupyter.contract.host.rundir import BEFORE_VARIABLE, describe_before
from det_jupyter.engine.local import start_agent


def test_a_log_that_is_too_long_is_emptied_and_its_end_is_kept(tmp_path: Path) -> None:
    log, copy = tmp_path / "agent.log", tmp_path / "agent.log.1"
    with open(log, "ab", buffering=0) as writer:
        for text in (b"first 10 \n", b"second 10\n", b"third 10 \n"):
            writer.write(text)
        trim_output(log, most_bytes=30)
        assert (log.stat().st_size, copy.exists()) == (30, False)
        trim_output(log, most_bytes=20)
        writer.write(b"fourth\n")
    assert log.read_text() == "fourth\n"
    assert copy.read_text() == "second 10\nthird 10 \n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_log_that_is_not_there_is_no_matter(tmp_path: Path) -> None:
    trim_output(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def start_one_zygote() -> Popen[bytes]:
    lifeline, other_end = os.pipe()
    try:
        zygote = start_zygote(sys.executable, lifeline_fd=lifeline, target="none")
        zygote.connection.close()
        return zygote.process
    finally:
        os.close(lifeline)
        os.close(other_end)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize("start", [spawn_master, start_agent, start_one_zygote])
def test_what_our_programs_print_is_appended_so_that_it_can_be_trimmed(
    start: Callable[[], Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\ngrep flags /proc/self/fdinfo/1\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    assert start().wait() == 0
    (log,) = paths.log_dir().iterdir()
    flags = int(log.read_text().split()[1], base=8)
    assert flags & os.O_APPEND, log.name


def test_a_log_takes_text_that_utf8_cannot_carry(tmp_path: Path) -> None:
    log = PrivateLog(tmp_path / "master.log")
    log.emit(logging.makeLogRecord({"msg": "a row says %s", "args": ("\udcff é",)}))
    log.close()
    assert (tmp_path / "master.log").read_text(encoding="utf-8") == "a row says \\udcff é\n"


def test_a_master_that_a_script_starts_has_nothing_of_the_scripts_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the agents and ranks that it starts later would have it, too."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "${A_TOKEN-none} ${CUDA_VISIBLE_DEVICES-none}"\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    before = dict(os.environ)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv(BEFORE_VARIABLE, describe_before(before, os.environ))
    assert spawn_master().wait() == 0
    (log,) = paths.log_dir().iterdir()
    assert log.read_text() == "none 0,1\n"
