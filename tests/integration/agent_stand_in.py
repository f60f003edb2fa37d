"""A rank that does as its hyperparameters say: stands in for det_jupyter.rank in agent tests.

`hparams["acts"]` is a list of `[verb, argument]` for all ranks, or a map of such lists by rank.
Forked by `--target tests.integration.agent_stand_in:run_rank`; started afresh by a kernel spec
whose argv is `python -m tests.integration.agent_stand_in`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import RankSpec
from det_jupyter.contract.run.control_page import ControlPage, OpenDraft

if os.environ.get("DET_TEST_SECOND_THREAD"):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()

if os.environ.get("DET_TEST_SPOILED"):  # as if a module had asked the driver, then forked
    import torch

    birthplace = os.getpid()
    torch.cuda._is_in_bad_fork = lambda: os.getpid() != birthplace

ENVIRON_AT_IMPORT = dict(os.environ)

if limit := os.environ.get("DET_TEST_NUM_FORKS"):
    forks, real_fork = iter(range(int(limit))), os.fork

    def fork() -> int:
        if next(forks, None) is None:
            raise BlockingIOError(11, "no more processes")
        return real_fork()

    os.fork = fork


def run_rank(spec: RankSpec) -> NoReturn:
    acts: Any = spec.plan.hparams["acts"]
    if isinstance(acts, dict):
        acts = acts.get(str(spec.place.rank), [])
    for verb, argument in acts:
        globals()[f"do_{verb}"](spec, argument)
    sys.stdout.flush()
    os._exit(0)


def do_journal(spec: RankSpec, lines: int) -> None:
    """Append that many numbered lines, in one write each."""
    path = RunDir(Path(spec.run_dir)).journal(spec.place.rank)
    with path.open("ab", buffering=0) as journal:
        for number in range(lines):
            journal.write(f'{{"rank":{spec.place.rank},"line":{number}}}\n'.encode())


def do_tick(spec: RankSpec, interval_s: float) -> NoReturn:
    """Append a numbered line every so often, for ever."""
    path = RunDir(Path(spec.run_dir)).journal(spec.place.rank)
    number = 0
    with path.open("ab", buffering=0) as journal:
        while True:
            journal.write(f'{{"line":{number}}}\n'.encode())
            number += 1
            time.sleep(interval_s)


def do_tear(spec: RankSpec, text: str) -> None:
    """Append a part of a line."""
    with RunDir(Path(spec.run_dir)).journal(spec.place.rank).open("a") as journal:
        journal.write(text)


def do_print(spec: RankSpec, text: str) -> None:
    print(text, flush=True)


def do_write(spec: RankSpec, text: str) -> None:
    """Print bytes (given as Latin-1) as they are."""
    os.write(1, text.encode("latin-1"))


def do_chat(spec: RankSpec, num_bytes: int) -> None:
    """Print that much in lines of 100 bytes, then say in the journal what that was written to."""
    line = f"{'x' * 97}\u00e9\n".encode()
    for _ in range(num_bytes // len(line) // 100):
        os.write(1, line * 100)
    is_file = stat.S_ISREG(os.fstat(1).st_mode)
    with RunDir(Path(spec.run_dir)).journal(spec.place.rank).open("a") as journal:
        journal.write(json.dumps({"is_file": is_file}) + "\n")


def do_obey(spec: RankSpec, exit_code: int) -> NoReturn:
    """Train until the control page says to leave."""
    page = ControlPage(RunDir(Path(spec.run_dir)).control)
    while not page.is_raised("preempt"):
        time.sleep(0.01)
    os._exit(exit_code)


def do_save(spec: RankSpec, end: str) -> None:
    """Write a checkpoint until the file `end` exists; say in the journal that it is stored."""
    folder = RunDir(Path(spec.run_dir))
    page = ControlPage(folder.control)
    page.note_draft(OpenDraft(os.getpid()))
    while not os.path.exists(end):
        time.sleep(0.01)
    with folder.journal(spec.place.rank).open("a") as journal:
        journal.write('{"stored": true}\n')
    page.note_draft(None)


def do_sleep(spec: RankSpec, seconds: float) -> None:
    time.sleep(seconds)


def do_burn(spec: RankSpec, path: str) -> NoReturn:
    """Use a core, and write to a file, until killed."""
    with open(path, "wb", buffering=0) as file:
        while True:
            sum(range(100_000))
            file.write(bytes(4096))
            os.fsync(file.fileno())


def do_fail(spec: RankSpec, message: str) -> NoReturn:
    raise ValueError(message)


def do_exit(spec: RankSpec, code: int) -> NoReturn:
    os._exit(code)


def do_kill(spec: RankSpec, number: int) -> None:
    os.kill(os.getpid(), number)


def do_await(spec: RankSpec, path: str) -> None:
    """Wait for a file."""
    while not os.path.exists(path):
        time.sleep(0.01)


def do_child(spec: RankSpec, path: str) -> None:
    """Start a process that would live for long, as a data loader does; write down its pid."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])
    Path(path).write_text(str(child.pid))


def do_tell(spec: RankSpec, path: str) -> None:
    """Write down what there is to know of this process."""
    facts = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "has_torch": "torch._dynamo" in sys.modules,
        "sigchld": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
        "place": spec.place.model_dump(),
        "store": spec.store,
        "secret": spec.secret,
        "argv": Path("/proc/self/cmdline").read_text(),
        "environ": dict(os.environ),
        "environ_at_import": ENVIRON_AT_IMPORT,
        "file_limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "socket_dir": spec.socket_dir,
        "python": sys.executable,
    }
    scratch = Path(f"{path}.{os.getpid()}")
    scratch.write_text(json.dumps(facts))
    scratch.rename(f"{path}-{spec.place.rank}")


def do_meet(spec: RankSpec, path: str) -> None:
    """Meet the other ranks over gloo, as a real rank does; write down what came of it."""
    from torch import device, tensor

    from det_jupyter.rank import rendezvous

    backend = rendezvous.choose_backend(spec.plan)
    here = rendezvous.join(
        spec.place,
        backend,
        device("cpu"),
        store=spec.store,
        secret=bytes.fromhex(spec.secret),
        network=spec.network,
    )
    facts = {
        "backend": backend,
        "local": [here.local_rank, here.local_size],
        "cross": [here.cross_rank, here.cross_size],
        "agents": here.get_num_agents(),
        "everyone": here.allgather(here.rank),
        "neighbours": here.allgather_local(here.rank),
        "local_chief": here.broadcast_local(here.rank),
        "sum": here.reduce_(tensor([float(here.rank)]), "sum").item(),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
        "environ": {name: os.environ[name] for name in ("GROUP_RANK", "LOCAL_RANK")},
    }
    here.barrier()
    scratch = Path(f"{path}.{os.getpid()}")
    scratch.write_text(json.dumps(facts))
    scratch.rename(f"{path}-{spec.place.rank}")


def main() -> NoReturn:
    from det_jupyter.rank.process import prepare_process

    spec = RankSpec.model_validate_json(Path(os.environ["DET_RANK_SPEC"]).read_bytes())
    prepare_process(spec, os.getppid())
    run_rank(spec)


if __name__ == "__main__":
    main()
