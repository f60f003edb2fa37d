"""Ranks that nothing but their arguments or variables bring together: real processes, no agent."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.contract.host.ports import free_port
from det_jupyter.core.ranks.handshake import CHALLENGE, LENGTH, signature_of
from tests.processes import wait_until

BEGIN = """
import json, os, sys, time
import torch
from det_jupyter.core import DistributedContext
rank, size, local = (int(word) for word in sys.argv[1:4])
place = {
    "rank": rank, "size": size, "local_rank": rank % local, "local_size": local,
    "cross_rank": rank // local, "cross_size": size // local,
}
def answer(**facts):
    with open(f"answer-{rank}", "w") as file:
        json.dump(facts, file)
"""
SHARE = """
seen = []
for length in (1, 70_000, 3_000_000):
    mine = {"rank": rank, "data": bytes([rank]) * length}
    everyone, gathered, chiefs = d.allgather(mine), d.gather(mine), d.broadcast(mine)
    assert [len(one["data"]) for one in everyone] == [length] * size
    seen = [
        [one["rank"] for one in everyone], gathered and [one["rank"] for one in gathered],
        chiefs["rank"], d.allgather_local(rank), d.gather_local(rank), d.broadcast_local(rank),
    ]
d.barrier()
total = d.reduce_(torch.tensor([[rank + 1.0, 0.5]]), "sum").tolist()
largest = d.reduce_(torch.tensor([rank]), "max").tolist()
answer(seen=seen, total=total, largest=largest, place=[d.rank, d.local_rank, d.cross_rank])
"""


# Forks the ranks, so that torch is imported once; and processes that do the same for one job.
FORKER = """
import json, os, signal, sys, tempfile, traceback
import torch, det_jupyter.core
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
parents = {}
def serve(lines, pids):
    for line in lines:
        asked = json.loads(line)
        if parent := asked.pop("parent"):
            to, back = parents.get(parent) or begin(parent)
            print(json.dumps(asked | {"parent": ""}), file=to, flush=True)
            print(back.readline().strip(), file=pids, flush=True)
        elif (pid := os.fork()) == 0:
            run(asked)
        else:
            print(pid, file=pids, flush=True)
def begin(parent):
    (lines, to), (back, pids) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(to)
        for other, _ in parents.values():
            other.close()
        serve(open(lines), open(pids, "w"))
        os._exit(0)
    os.close(lines), os.close(pids)
    parents[parent] = open(to, "w"), open(back)
    return parents[parent]
def run(asked):
    os.chdir(asked["folder"])
    os.environ.update(asked["variables"])
    tempfile.tempdir = None
    os.dup2(os.open(asked["errors"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    sys.argv[1:] = asked["arguments"]
    try:
        exec(compile(asked["code"], "script", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(0)
serve(sys.stdin, sys.stdout)
for to, _ in parents.values():
    to.close()
try:
    os.wait()  # until all have ended: their ends are ignored
except ChildProcessError:
    pass
"""


@pytest.fixture(scope="module")
def forker() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


class Lab:
    """Starts jobs in a folder."""

    def __init__(self, forker: subprocess.Popen[str], folder: Path) -> None:
        self.forker = forker
        self.folder = folder

    def job(self, code: str, ranks: int, **options: Any) -> Job:
        return Job(self, code, ranks, **options)


@pytest.fixture
def lab(forker: subprocess.Popen[str], tmp_path: Path) -> Lab:
    return Lab(forker, tmp_path)


class Job:
    """Ranks that run one script.

    Args:
        local: Ranks on each computer.
        variables: By rank, its environment.
        numbers: The ranks that are started.
        name: Of its folder, if several jobs run.
        parent: Name of the process that starts the ranks; by default it is that of all jobs.
    """

    def __init__(
        self,
        lab: Lab,
        code: str,
        ranks: int,
        *,
        local: int | None = None,
        variables: Callable[[int], dict[str, str]] = lambda rank: {},
        numbers: Sequence[int] | None = None,
        name: str = "",
        parent: str = "",
    ) -> None:
        self.folder = lab.folder / name
        self.folder.mkdir(exist_ok=True)
        self.pids: list[int] = []
        self.files: list[Path] = []
        for rank in range(ranks) if numbers is None else numbers:
            self.files.append(self.folder / f"errors-{rank}-{len(self.files)}")
            ask = {
                "folder": str(self.folder),
                "variables": {"TMPDIR": str(lab.folder)} | variables(rank),
                "parent": parent,
                "errors": str(self.files[-1]),
                "arguments": [str(rank), str(ranks), str(local or ranks)],
                "code": BEGIN + code,
            }
            assert lab.forker.stdin
            assert lab.forker.stdout
            lab.forker.stdin.write(json.dumps(ask) + "\n")
            lab.forker.stdin.flush()
            self.pids.append(int(lab.forker.stdout.readline()))

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.errors()

    def errors(self) -> list[str]:
        """Return the last line that each printed, once all have ended."""
        while any(psutil.pid_exists(pid) for pid in self.pids):
            time.sleep(0.005)
        ends = [file.read_text().strip() for file in self.files]
        return [end.rpartition("\n")[2] for end in ends]

    def answers(self) -> list[Any]:
        assert self.errors() == [""] * len(self.pids)
        files = [self.folder / f"answer-{rank}" for rank in range(len(self.pids))]
        return [json.loads(file.read_text()) for file in files]


def by_torchrun(rank: int) -> dict[str, str]:
    place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2}
    return {name: str(value) for name, value in place.items()} | {"MASTER_PORT": "4"}


def by_mpirun(rank: int) -> dict[str, str]:
    place = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in place.items()}


@pytest.mark.parametrize(
    ("make", "variables"),
    [
        ("d = DistributedContext(**place)", lambda rank: {}),
        ("d = DistributedContext(**place, force_tcp=True, pub_port=PORT)", lambda rank: {}),
        ("d = DistributedContext.from_torch_distributed()", by_torchrun),
        ("d = DistributedContext.from_deepspeed()", by_torchrun),
        ("d = DistributedContext.from_mpi()", by_mpirun),
        (  # the second one of a process, after the first
            "a = DistributedContext(**place); d = DistributedContext(**place); a.close()",
            lambda rank: {},
        ),
    ],
)
def test_two_ranks_of_one_computer_share_objects(lab: Lab, make: str, variables: Any) -> None:
    code = make.replace("PORT", str(free_port())) + SHARE
    with lab.job(code, 2, variables=variables) as job:
        for rank, told in enumerate(job.answers()):
            gathered = None if rank else [0, 1]
            assert told["seen"] == [[0, 1], gathered, 0, [0, 1], gathered, 0]
            assert (told["total"], told["largest"]) == ([[3.0, 1.0]], [1])


def test_local_collectives_stay_on_their_computer(lab: Lab) -> None:
    make = f"d = DistributedContext(**place, chief_ip='127.0.0.1', pub_port={free_port('')})"
    with lab.job(make + SHARE, 4, local=2) as job:
        told = job.answers()
    local = [answer["seen"][3:] for answer in told]
    assert local == [
        [[0, 1], [0, 1], 0],
        [[0, 1], None, 0],
        [[2, 3], [2, 3], 2],
        [[2, 3], None, 2],
    ]
    assert [answer["seen"][0] for answer in told] == [[0, 1, 2, 3]] * 4


# The second ranks of two jobs come in turn: each is there when the other job's chief waits.
IN_TURN = """
job = os.path.basename(os.getcwd())
time.sleep({"a0": 0.0, "b1": 0.2, "b0": 0.4, "a1": 0.6}[f"{job}{rank}"])
"""
BY_FILE = (
    "torch.distributed.init_process_group('gloo', init_method='file://' + os.path.abspath("
    "'store'), rank=rank, world_size=2)\n"
)


@pytest.mark.parametrize(
    ("begin", "make", "variables", "parents"),
    [
        ("", "DistributedContext(**place)", lambda rank: {}, "ab"),
        ("", "DistributedContext.from_torch_distributed()", by_torchrun, "ab"),
        (BY_FILE, "DistributedContext(**place)", lambda rank: {}, ("", "")),
        (BY_FILE, "DistributedContext.from_torch_distributed()", by_torchrun, ("", "")),
        (BY_FILE, "DistributedContext(**place, force_tcp=True)", lambda rank: {}, ("", "")),
    ],
)
def test_ranks_of_two_jobs_that_start_together_do_not_meet(
    lab: Lab, begin: str, make: str, variables: Any, parents: Any
) -> None:
    code = f"{begin}{IN_TURN}d = {make}\nanswer(jobs=d.allgather(job))"
    begun = [
        lab.job(code, 2, variables=variables, name=name, parent=parent)
        for name, parent in zip("ab", parents, strict=True)
    ]
    with begun[0], begun[1]:
        assert [job.answers() for job in begun] == [[{"jobs": [name] * 2}] * 2 for name in "ab"]


def test_a_rank_that_meets_the_rank_0_of_another_job_is_refused_by_name(lab: Lab) -> None:
    port = free_port()
    code = f"""
import psutil
own = f"{{os.path.basename(os.getcwd())}}{{rank}}"
def is_turn():
    if own == "b1":  # as soon as the rank 0 of the other job listens
        found = psutil.net_connections("tcp")
        return {port} in [c.laddr.port for c in found if c.status == psutil.CONN_LISTEN]
    before = {{"b0": "../b1", "a1": "../b0"}}.get(own)
    return before is None or os.path.exists(before)
while not is_turn():
    time.sleep(0.01)
try:
    d = DistributedContext(**place, join_timeout_s=120, force_tcp=True, pub_port={port})
finally:
    open(f"../{{own}}", "w").close()
"""
    begun = [lab.job(code, 2, name=name, parent=name) for name in "ab"]
    with begun[0], begun[1]:
        errors = begun[0].errors(), begun[1].errors()
    assert errors[0] == ["", ""]
    for error in errors[1]:
        assert "has met the rank 0 of another job at 127.0." in error


def test_ranks_of_two_jobs_that_nothing_tells_apart_do_not_train_together(lab: Lab) -> None:
    code = """
job = os.path.basename(os.getcwd())
while f"{job}{rank}" in ("a1", "b0") and not os.path.exists("../met"):
    time.sleep(0.01)
d = DistributedContext(**place, join_timeout_s=10)
if rank == 0:  # it has stored which ranks have met
    open("../met", "w").close()
while True:
    d.barrier()
    time.sleep(0.01)
"""
    begun = [lab.job(code, 2, name=name) for name in "ab"]
    with begun[0], begun[1]:
        (a0, a1), (b0, b1) = (job.errors() for job in begun)
        pids = [job.pids for job in begun]
    met = f"these ranks have met: rank 0 (pid {pids[0][0]} on "
    for error in (a0, a1, b0, b1):
        assert met in error
        assert f"rank 1 (pid {pids[1][1]} on " in error
        assert "ranks of two jobs may be mixed" in error
    assert f"rank 1 of 2 (pid {pids[0][1]} on " in a1
    assert f"rank 0 of 2 (pid {pids[1][0]} on " in b0


def test_a_job_that_is_started_while_another_one_trains_does_not_disturb_it(lab: Lab) -> None:
    trains = """
d = DistributedContext(**place)
answer()
while not d.broadcast(os.path.exists("enough")):
    time.sleep(0.01)
answer(has_ended=True)
"""
    late = "d = DistributedContext(**place, join_timeout_s=1.5)"
    with lab.job(trains, 2, name="a") as first:
        answers = [first.folder / f"answer-{rank}" for rank in (0, 1)]
        wait_until(lambda: all(map(Path.exists, answers)), "the ranks of the first job have met")
        with lab.job(late, 2, name="b") as second:
            chief, other = second.errors()
        (first.folder / "enough").touch()
        assert first.answers() == [{"has_ended": True}] * 2
    owner = f"rank 0 of 2 (pid {first.pids[0]} on "
    assert owner in chief
    assert "has the place of this job; give this job a pub_port of its own" in chief
    assert "rank 0 of 2 has not come to" in other
    assert f"Here these ranks have met: rank 0 (pid {first.pids[0]} on " in other


def test_ranks_that_nothing_brings_together_are_told_of_each_other(lab: Lab) -> None:
    code = "d = DistributedContext(**place, join_timeout_s=1 - rank / 2)"
    begun = [
        lab.job(code, 2, numbers=[rank], parent=parent) for rank, parent in enumerate(("c", "d"))
    ]
    with begun[0], begun[1]:
        (chief,), (other,) = (job.errors() for job in begun)
    assert "rank 1 of 2 has not come to" in chief
    assert "rank 0 of 2 has not come to" in other
    for error in (chief, other):
        assert "to have others meet, set DET_JUPYTER_STORE for all of them to the same" in error
    assert f"At other places wait: rank 0 of 2 (pid {begun[0].pids[0]} on " in other


def test_a_rank_0_may_start_the_others_itself(lab: Lab) -> None:
    code = """
if os.fork() == 0:
    rank = place["rank"] = place["local_rank"] = 1
d = DistributedContext(**place)
answer(ranks=d.allgather(rank))
d.barrier()
"""
    with lab.job(code, 2, numbers=[0]) as job:
        assert job.errors() == [""]
    for rank in (0, 1):
        assert json.loads((lab.folder / f"answer-{rank}").read_text()) == {"ranks": [0, 1]}


def test_ranks_that_do_not_come_are_named(lab: Lab) -> None:
    make = "d = DistributedContext(**place, join_timeout_s=1)"
    with lab.job(make, 4, numbers=(1, 0)) as job:  # the chief last: its second is the one
        for error in job.errors():
            assert "ranks 2, 3 of 4 have not come to" in error
            assert "within 1 s" in error
    with lab.job(make.replace("s=1", "s=0.2"), 4, numbers=(1,)) as job:
        (error,) = job.errors()
        assert "rank 0 of 4 has not come to" in error
    with lab.job(f"{BY_FILE}if rank:\n    {make}\ntime.sleep(2)", 2) as job:
        assert "rank 0 of 2 has not made its DistributedContext within 1 s" in job.errors()[1]


def test_two_processes_with_one_rank_are_named(lab: Lab) -> None:
    with lab.job("d = DistributedContext(**place)", 3, numbers=(0, 1, 1)) as job:
        errors = job.errors()
        pids = job.pids[1:]
    for error in errors:
        assert "rank 1 was given to 2 processes" in error
        assert all(f"pid {pid} on " in error for pid in pids)


def test_a_rank_that_has_ended_fails_the_others_at_once(lab: Lab) -> None:
    code = """
d = DistributedContext(**place)
d.barrier()
if rank == 2:
    os._exit(3)
d.allgather(1)
"""
    with lab.job(code, 3) as job:
        gone = f"rank 2 (pid {job.pids[2]} on "
        for error in job.errors()[:2]:
            assert gone in error
            assert "has ended, or closed its context, before allgather number 2" in error


def test_a_rank_that_stays_away_is_named_when_the_time_is_up(lab: Lab) -> None:
    code = """
d = DistributedContext(**place, collective_timeout_s=1)
if rank == 1:
    time.sleep(2.5)
d.allgather(1)
"""
    with lab.job(code, 3) as job:
        for error in job.errors():
            assert "rank 1 of 3 has not come to allgather number 1 within 1 s" in error


def test_different_collectives_are_told(lab: Lab) -> None:
    code = "d = DistributedContext(**place)\nd.allgather(1) if rank else d.gather(1)"
    with lab.job(code, 2) as job:
        chief, other = job.errors()
    told = f"rank 1 (pid {job.pids[1]} on "
    for error in (chief, other):
        assert told in error
        assert "has called allgather number 1, rank 0 gather number 1" in error


# What is signed well, which anyone can who has no secret to know, and names no rank.
ODD = (
    b"7", b"[" * 9000, b"\xff", b"{}", b'{"nonce": "00", "name": "x", "place": {"rank": 1}}',
    b'{"nonce": 7, "name": "x", "place": {}}', b'{"nonce": "00", "name": "x", "place": 7}',
)  # fmt: skip


class Evil:
    """Acts where it is read."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


def test_a_stranger_is_sent_away_and_nothing_of_its_is_read(lab: Lab) -> None:
    port = free_port()
    make = f"d = DistributedContext(**place, force_tcp=True, pub_port={port})"
    with lab.job(make + SHARE, 2, numbers=(0,)) as job:
        silent = connected(port)
        loud = connected(port)
        loud.sendall(pickle.dumps(Evil()) * 1000)
        knocking = connected(port)
        knocking.recv(100)
        knocking.sendall(b"\x20\0\0\0" + b"{" * 32 + bytes(32))
        assert len(knocking.recv(1000)) > 32  # a verdict
        assert knocking.recv(10) == b""
        with lab.job(make + SHARE, 2, numbers=(1,)) as other:
            assert other.errors() == job.errors() == [""]
        for sock in (silent, loud, knocking):
            sock.close()
    assert not (lab.folder / "canary").exists()


def test_what_is_no_hello_ends_nothing_where_there_is_no_secret_to_know(lab: Lab) -> None:
    port = free_port()
    make = f"d = DistributedContext(**place, chief_ip='127.0.0.1', pub_port={port})"
    with lab.job(make + SHARE, 2, local=1, numbers=(0,)) as job:
        for said in ODD:
            with connected(port) as sock:
                _, nonce, _ = CHALLENGE.unpack(sock.recv(CHALLENGE.size))
                mark = signature_of(b"", b"hello" + nonce, said)
                sock.sendall(LENGTH.pack(len(said)) + said + mark)
                assert sock.recv(10) == b""
        with lab.job(make + SHARE, 2, local=1, numbers=(1,)) as other:
            assert other.errors() == job.errors() == [""]


def connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)


def test_a_rank_with_another_secret_is_refused(lab: Lab) -> None:
    store = {"DET_JUPYTER_STORE": str(lab.folder / "store")}
    make = "d = DistributedContext(**place, join_timeout_s=1)"

    def variables(rank: int) -> dict[str, str]:
        return store | {"DET_JUPYTER_SECRET": f"{rank:02}"}

    with lab.job(make, 2, numbers=(1, 0), variables=variables) as job:
        other, chief = job.errors()
    assert "rank 1 and what it has met as rank 0 do not have the same secret" in other
    assert "1 connections were refused, because they did not have the secret" in chief


def test_a_forked_process_hides_no_end_of_its_rank(lab: Lab) -> None:
    code = """
d = DistributedContext(**place)
if rank == 1 and (child := os.fork()):
    open("child", "w").write(str(child))
    os._exit(0)
if rank == 1:
    try:
        d.barrier()
    except RuntimeError as error:
        answer(said=str(error))
    os.close(2)
    time.sleep(3600)
d.barrier()
"""
    with lab.job(code, 2) as job:
        chief, _ = job.errors()
        assert "has ended, or closed its context" in chief
        while not (lab.folder / "answer-1").exists():
            time.sleep(0.01)
        os.kill(int((lab.folder / "child").read_text()), signal.SIGKILL)
    said = json.loads((lab.folder / "answer-1").read_text())["said"]
    assert "was forked by a rank" in said
