"""A kernel that serves in a process of its own: what its clients see, and what it leaves."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient

from det_jupyter.rank.kernel import KernelServer
from tests.forks import torch_source

REQUESTS = ("comm_open", "comm_msg", "comm_close")  # what front ends ask of every kernel
WIDGET = {"comm_id": "one", "target_name": "jupyter.widget.control", "data": {}}


def process_state() -> dict[str, Any]:
    """Return what a kernel must not change in its rank."""
    return {
        "main": id(sys.modules["__main__"]),
        "path": list(sys.path),
        "environment": dict(os.environ),
        "hooks": [id(sys.excepthook), id(sys.displayhook)],
        "handlers": list(map(id, logging.root.handlers)),
        "ports": len(psutil.Process().net_connections("tcp")),
    }


def look(folder: Path) -> dict[str, Any]:
    """Serve a kernel in this process, and return what a client sees."""
    warnings.simplefilter("ignore")  # as errors they would end what the kernel does
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    variables, before = {"steps_completed": 1}, process_state()
    file = folder / "kernel-0.json"
    KernelServer(file, str(folder / "0"), lambda: variables).start()
    client = BlockingKernelClient()
    while not file.exists():
        time.sleep(0.01)
    client.load_connection_file(str(file))
    client.start_channels()
    client.wait_for_ready()
    found: dict[str, Any] = {}

    def value_of(code: str) -> str:
        said: list[dict[str, Any]] = []
        client.execute_interactive(code, output_hook=said.append)
        values = [m["content"] for m in said if m["msg_type"] in ("execute_result", "stream")]
        return "".join(each.get("text") or each["data"]["text/plain"] for each in values)

    found["completed"] = client.complete("steps_c", reply=True)["content"]["matches"]
    found["banner"] = client.kernel_info(reply=True)["content"]["banner"].splitlines()[-1]
    for kind in REQUESTS:
        client.shell_channel.send(client.session.msg(kind, WIDGET))
    found["first"] = value_of("steps_completed")
    variables["steps_completed"] = 2
    found["second"] = value_of("steps_completed")
    found["printed"] = value_of("print('in a cell')")
    found["history"] = value_of("get_ipython().history_manager.enabled")
    client.execute("print('begun'); import time\nfor _ in range(500): time.sleep(0.01)")
    while client.get_iopub_msg()["msg_type"] != "stream":
        pass
    client.control_channel.send(client.session.msg("interrupt_request", {}))
    found["interrupted"] = client.get_shell_msg()["content"].get("ename")
    found["changed"] = [key for key, was in before.items() if process_state()[key] != was]
    found["output of the rank"] = sys.stdout.getvalue() + sys.stderr.getvalue()
    return found


def write_what_is_seen(folder: Path) -> None:
    """Serve, look and write; of a process of its own."""
    (folder / "found.json").write_text(json.dumps(look(folder)))


def test_a_kernel_shows_the_ranks_present_variables_and_changes_nothing_in_its_process() -> None:
    with tempfile.TemporaryDirectory(prefix="k") as name:  # short, for its sockets
        folder = Path(name)
        errors = folder / "errors"
        fork = torch_source().start(
            f"{__name__}:write_what_is_seen", folder, outputs=[errors, errors]
        )
        assert fork.wait() == 0, errors.read_text()
        found = json.loads((folder / "found.json").read_text())
    assert found == {
        "completed": ["steps_completed"],
        "banner": "Names, as they are when a cell begins: steps_completed",
        "first": "1",
        "second": "2",
        "printed": "in a cell\n",
        "history": "False",
        "interrupted": "KeyboardInterrupt",
        "changed": [],
        "output of the rank": "",
    }
