"""What tests of launchers share: a folder like that of a run, and launchers as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from det_jupyter.contract.host.rundir import RUN_VARIABLE, STORE_VARIABLE
from det_jupyter.contract.run.journal import RankFailure, parse_line
from tests.processes import wait_until

_OURS = {RUN_VARIABLE, STORE_VARIABLE, "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"}


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a launcher outside of experiments."""
    return {k: v for k, v in os.environ.items() if k not in _OURS} | changes


def make_run(folder: Path, *, num_slots: int = 2) -> dict[str, str]:
    """Make a run's folder, and return the environment of the process on its first computer."""
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"slots": [{}] * num_slots, "agent_ids": []}))
    return environment(**{RUN_VARIABLE: str(folder), "GROUP_RANK": "0"})


def script(folder: Path, source: str, name: str = "script.py") -> Path:
    """Write a script."""
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def start(
    launcher: str, *words: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a launcher."""
    return subprocess.Popen(
        [sys.executable, "-m", f"det_jupyter.launch.{launcher}", *map(str, words)],
        env=dict(env) if env is not None else environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def launch(
    launcher: str,
    *words: str | Path,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a launcher to its end; none of its processes is left."""
    process = start(launcher, *words, env=env)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def failures(run: Path, rank: int) -> list[RankFailure]:
    """Return the failures in a rank's journal."""
    journal = run / f"journal-{rank}"
    lines = journal.read_bytes().splitlines() if journal.exists() else []
    return [found for found in map(parse_line, lines) if isinstance(found, RankFailure)]


def wait_for_files(folder: Path, *names: str) -> list[str]:
    """Wait until the files exist and are not empty, and return what they have."""

    def found() -> list[str] | None:
        paths = [folder / name for name in names]
        texts = [path.read_text() if path.exists() else "" for path in paths]
        return texts if all(texts) else None

    return wait_until(found, f"{', '.join(names)} are there")
