"""Every rank is a Jupyter kernel that answers while it trains."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient

from det_jupyter.contract.run.journal import BatchMetrics, RunEnded
from det_jupyter.rank.__main__ import main
from tests.forks import torch_source
from tests.integration.rank_support import Gang, Lab
from tests.integration.test_rank_failures import FRAIL, SLEEP, frail
from tests.waiting import wait_until


@contextmanager
def client_of(gang: Gang, rank: int) -> Iterator[BlockingKernelClient]:
    """Attach to the rank's kernel."""
    file = gang.folder.connection_file(rank)
    gang.wait_until(file.exists, "the connection file is there")
    client = BlockingKernelClient()
    client.load_connection_file(str(file))
    client.start_channels()
    try:
        client.wait_for_ready()
        yield client
    finally:
        client.stop_channels()


def execute(client: BlockingKernelClient, code: str) -> tuple[str, str]:
    """Return the value of the code's last expression as text, and what it printed."""
    outputs: list[dict[str, Any]] = []
    reply = client.execute_interactive(code, output_hook=outputs.append)
    assert reply["content"]["status"] == "ok", reply["content"]
    contents = [(message["msg_type"], message["content"]) for message in outputs]
    values = [c["data"]["text/plain"] for kind, c in contents if kind == "execute_result"]
    printed = "".join(c["text"] for kind, c in contents if kind == "stream")
    return (values or [""])[-1], printed


# In its third batch each rank waits until it is told to go on.
WAITING = frail(
    "import os, time\nwhile not os.path.exists('go on'): time.sleep(0.02)",
    "train_batch", on_ranks=(0, 1), batch_idx=2,
)  # fmt: skip


def ended(lab: Lab, gang: Gang) -> RunEnded:
    """Have a gang that waits go on, and wait for its end."""
    (lab.cwd / "go on").touch()
    return gang.ended()


def test_a_rank_shows_live_values_and_its_stack_while_it_trains(lab: Lab) -> None:
    gang = lab.start(FRAIL, WAITING)
    gang.wait_until(lambda: gang.of(BatchMetrics), "training has begun")
    with client_of(gang, 1) as client:
        gang.wait_until(lambda: execute(client, "batch_idx")[0] == "2", "batch 2 is in training")
        assert execute(client, "rank, world_size, device, steps_completed")[0] == (
            "(1, 2, device(type='cpu'), 2)"
        )
        assert execute(client, "loss > 0 and loss == float(metrics['loss'])")[0] == "True"
        assert execute(client, "trial.model is model is context.models[0]")[0] == "True"
        assert execute(client, "len(batch), type(optimizer).__name__")[0] == "(2, 'SGD')"
        client.kernel_info()
        banner = client.get_shell_msg()["content"]["banner"]
        assert banner.startswith("Rank 1 of 2. It trains on while you look")
        names = banner.split("begins: ")[1].strip().split(", ")
        assert {"batch", "batch_idx", "loss", "model", "steps_completed", "trial"} <= {*names}
        stack = ast.literal_eval(execute(client, "det_stack()")[0])
        assert stack.startswith("  Cell In[5], line ")
        assert 'self.maybe_act("train_batch", batch_idx)' in stack
        assert "det_jupyter/" not in stack
        assert execute(client, "print('to the client')") == ("", "to the client\n")
    assert ended(lab, gang).reason == "completed"
    assert "to the client" not in gang.output()


def test_what_front_ends_ask_of_every_kernel_is_no_error_of_the_rank(lab: Lab) -> None:
    gang = lab.start(FRAIL, WAITING)
    gang.wait_until(lambda: gang.of(BatchMetrics), "training has begun")
    asked = {"comm_id": "one", "target_name": "jupyter.widget.control", "data": {}}
    with client_of(gang, 0) as client:
        for kind in ("comm_open", "comm_msg", "comm_close"):
            client.shell_channel.send(client.session.msg(kind, asked))
        assert execute(client, "1 + 1")[0] == "2"
    assert ended(lab, gang).reason == "completed"
    assert "omm" not in gang.output()


def test_a_client_can_neither_end_nor_interrupt_a_rank(lab: Lab) -> None:
    gang = lab.start(FRAIL, WAITING)
    gang.wait_until(lambda: gang.of(BatchMetrics), "training has begun")
    for request in ("interrupt_request", "shutdown_request"):
        with client_of(gang, 0) as client:
            client.control_channel.send(client.session.msg(request, {"restart": False}))
            reply = client.control_channel.get_msg()
            assert reply["content"]["status"] == "ok"
            assert execute(client, "1 + 1")[0] == "2"
    assert ended(lab, gang).reason == "completed"


def test_a_cell_that_runs_for_ever_can_be_interrupted_and_the_training_goes_on(lab: Lab) -> None:
    gang = lab.start(FRAIL, WAITING)
    gang.wait_until(lambda: gang.of(BatchMetrics), "training has begun")
    with client_of(gang, 0) as client:
        # Else the kernel drops what comes in the moment after the error.
        client.execute("print('running')\nwhile True: pass", stop_on_error=False)
        while client.get_iopub_msg()["msg_type"] != "stream":
            pass
        client.control_channel.send(client.session.msg("interrupt_request", {}))
        reply = client.get_shell_msg()
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert execute(client, "1 + 1")[0] == "2"
    assert ended(lab, gang).reason == "completed"


def test_a_rank_that_is_stuck_before_its_first_step_can_be_looked_into(lab: Lab) -> None:
    gang = lab.start(FRAIL, frail(SLEEP.format(60), "__init__", on_ranks=(1,)))
    with client_of(gang, 1) as client:
        stack = ast.literal_eval(execute(client, "det_stack()")[0])
        assert "in __init__" in stack
    gang.kill()


def test_leaving_a_console_leaves_the_kernel(lab: Lab) -> None:
    gang = lab.start(FRAIL, WAITING, ranks=1)
    with client_of(gang, 0) as client:
        for word in ("exit", "quit()"):
            reply = client.execute_interactive(word, output_hook=lambda message: None)
            (payload,) = reply["content"]["payload"]
            assert (payload["source"], payload["keepkernel"]) == ("ask_exit", True)
            time.sleep(0.3)  # IPython's kernel would end after 0.1 s
            assert execute(client, "1 + 1")[0] == "2"
    ended(lab, gang)


def test_the_connection_file_is_private_and_complete(lab: Lab) -> None:
    gang = lab.start(FRAIL, WAITING, ranks=1)
    file = gang.folder.connection_file(0)
    gang.wait_until(file.exists, "the connection file is there")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    connection = json.loads(file.read_text())
    assert connection["transport"] == "ipc"
    assert len(connection["key"]) == 64
    ended(lab, gang)


# Forks while its kernel waits; then beside a thread of its own, of which Python 3.12 warns.
FORKING = frail(
    """
import os, sys, threading, time
def fork():
    import os, warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return len(caught)
while not os.path.exists('go on'): time.sleep(0.02)
seen = [fork()]
over = threading.Event()
threading.Thread(target=over.wait).start()
seen.append(fork() - (sys.version_info >= (3, 12)))
over.set()
print("not due:", seen, "threads:", threading.active_count() > 4)
""",
    "train_batch", on_ranks=(0,), batch_idx=2,
)  # fmt: skip


def test_a_kernel_opens_no_port_and_forks_are_as_without_it(lab: Lab) -> None:
    gang = lab.start(FRAIL, FORKING, ranks=1)
    with client_of(gang, 0) as client:
        assert psutil.Process(gang.pids[0]).net_connections("tcp") == []
        fork = "import os; pid = os.fork() or [print('x', flush=True), os._exit(7)]; "
        value, printed = execute(client, fork + "os.waitpid(pid, 0)[1] >> 8")
        assert value == "7"
        assert "x" not in printed.split(), "other users could send to where it is printed"
        assert ("multi-threaded" in printed) == (sys.version_info >= (3, 12)), "the trainer's"
        ended(lab, gang)
    assert "not due: [0, 0] threads: True" in gang.output(), "what it prints after a cell"


# Notes what the process has before its kernel starts, and waits.
NOTING = frail(
    """
import json, logging, os, sys, time
logging.getLogger("trainer").addHandler(logging.FileHandler("trainer.log", "w"))
os.environ["VIRTUAL_ENV"] = "/elsewhere"  # IPython would add its packages to sys.path
with open("before", "w") as file:
    json.dump([dict(os.environ), sys.path, sorted(vars(sys.modules["__main__"]))], file)
while not os.path.exists("go on"): time.sleep(0.02)
""",
    "__init__", on_ranks=(0,),
)  # fmt: skip


def test_what_belongs_to_the_process_stays_the_trainers_when_the_kernel_runs(lab: Lab) -> None:
    gang = lab.start(FRAIL, NOTING, ranks=1)
    with client_of(gang, 0) as client:
        execute(client, "import logging; logging.getLogger('trainer').error('kept')")
        assert execute(client, "open('trainer.log').read()")[0] == r"'kept\n'"
        execute(client, "import json, os, sys; before = json.load(open('before'))")
        main = "sorted(vars(sys.modules['__main__']))"
        for index, now in enumerate(["dict(os.environ)", "sys.path", main]):
            assert execute(client, f"before[{index}] == {now}")[0] == "True", now
    ended(lab, gang)


def test_a_rank_can_be_started_without_the_zygote(lab: Lab) -> None:
    plan, folder = lab.prepare(FRAIL, frail("print('hello')", "train_batch", on_ranks=(0,)), 1)
    (spec,) = lab.specs(plan, folder)
    alone = spec.model_copy(update={"place": spec.place.model_copy(update={"lifeline_fd": None})})
    told = lab.data_dir / "spec.json"
    told.write_text(alone.model_dump_json())
    with told.open() as stdin:
        process = torch_source().start(
            f"{__name__}:be_rank",
            argv=["rank", "-f", str(folder.connection_file(0))],
            environment=lab.environment(DET_RANK_SPEC="/dev/stdin"),
            descriptors=[stdin.fileno()],
        )
    assert process.wait() == 0
    assert folder.output(0).read_text() == "hello\n"


def be_rank(stdin: int) -> None:
    """Be `python -m det_jupyter.rank`, with torch loaded; the test below really starts that."""
    os.dup2(stdin, 0)
    main()


def test_without_a_rank_to_be_the_worker_is_an_ordinary_kernel(lab: Lab) -> None:
    file = lab.data_dir / "kernel.json"
    file.parent.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "det_jupyter.rank", "-f", str(file)]
    process = subprocess.Popen(
        argv, env=lab.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(file.exists, "the kernel listens")
        client = BlockingKernelClient()
        client.load_connection_file(str(file))
        client.start_channels()
        client.wait_for_ready()
        assert execute(client, "6 * 7")[0] == "42"
        client.shutdown()
        assert process.wait() == 0
        client.stop_channels()
    finally:
        process.kill()
        process.wait()
