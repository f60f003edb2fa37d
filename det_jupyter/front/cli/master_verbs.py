"""`det master`: start, stop and inspect the background process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import TextIO

import yaml

from det_jupyter._version import __version__
from det_jupyter.connection import announced_master, require_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.regular_files import read_regular
from det_jupyter.errors import NotFound
from det_jupyter.front.cli.connecting import START
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.master import cli

_POLL_S = 0.2


def control(call: Call) -> int:
    """Run `det master start`, `restart`, `stop` or `status`; return the exit status."""
    run = {
        "start": cli.start,
        "restart": cli.restart,
        "stop": cli.stop,
        "status": cli.status,
    }[call.options.verb.name]
    return run(call.options)


def logs(call: Call) -> str:
    """Print the end of the master's log; with `--follow`, print new lines until Ctrl-C."""
    path = paths.log_dir() / "master.log"
    if not path.exists():
        raise NotFound(f"there is no log yet: {path}")
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=call.options.tail):
            sys.stdout.write(line)
        if call.options.follow:
            _follow(file, path)
    return ""


def _follow(file: TextIO, path: Path) -> None:
    """Print what is appended to a log file, also after the master has rotated it."""
    while True:
        if line := file.readline():
            sys.stdout.write(line)
            continue
        sys.stdout.flush()
        time.sleep(_POLL_S)
        if path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            with path.open(encoding="utf-8", errors="replace") as successor:
                return _follow(successor, path)


def config(call: Call) -> str:
    """Return the paths of data, logs and pools file, and the text of the pools file."""
    pools = paths.pools_file()
    lines = [f"data: {paths.data_dir()}", f"logs: {paths.log_dir()}", f"pools_file: {pools}"]
    if pools.exists():
        lines.append(read_regular(pools).decode().rstrip("\n"))
    return "\n".join(lines)


def info(call: Call) -> str:
    """Return the master's version, address and process as YAML or JSON, without its token."""
    require_master(START)
    found = announced_master()
    if found is None:
        return ""
    document = found.model_dump(mode="json", exclude={"token"})
    if call.options.json or call.options.output == "json":
        return json.dumps(document, indent=2)
    return yaml.safe_dump(document, sort_keys=False).rstrip("\n")


def version(call: Call) -> str:
    """Return the installed version of det_jupyter."""
    return __version__
