"""What another user of the computer can do to a gang: nothing but disturb it.

One test is that user. In the others a rank itself plays someone who got as far as a connection.
"""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # see torch's stubs

from tests.another_user import as_another_user
from tests.integration.rank_support import Lab
from tests.integration.test_rank_failures import FRAIL, frail

SEND = """
import json
from datetime import timedelta
import torch.distributed as dist
from det_jupyter.rank import membership
from det_jupyter.rank.membership import check_members
from det_jupyter.errors import PeerRefused

d, group, told = self.context.distributed, dist.group.WORLD, {}


def note(name, call):
    try:
        told[name] = repr(call())
    except (PeerRefused, dist.DistNetworkError) as error:
        told[name] = str(error)


is_victim = d.rank == 1
note("stranger", lambda: check_members(group, "i", b"ours" if is_victim else b"guess"))
note("friend", lambda: check_members(group, "j", b"ours"))
membership._PROOF_TIMEOUT = timedelta(seconds=0.2)
group = dist.new_group()
is_victim and note("silent", lambda: check_members(group, "k", b"ours"))
with open(f"answer-{d.rank}", "w") as file:
    json.dump(told, file)
"""

SHARE = """
import json
import torch

d, sizes = self.context.distributed, []
for length in (0, 400, 65_000, 66_000, 5_000_000):  # in one part, and in several
    mine = {"rank": d.rank, "data": bytes(length * (d.rank + 1)), "tensor": torch.ones(3)}
    everyone, gathered, chiefs = d.allgather(mine), d.gather(mine), d.broadcast(mine)
    assert gathered is None if d.rank else [g["rank"] for g in gathered] == [0, 1]
    for rank, value in enumerate([*everyone, chiefs]):
        assert torch.equal(value["tensor"], torch.ones(3))
        sizes.append((value["rank"], len(value["data"]) - length * (rank % 2 + 1)))
with open(f"answer-{d.rank}", "w") as file:
    json.dump(sizes, file)
"""


def on_both_ranks(code: str) -> dict[str, Any]:
    """Return the configuration of a trial that runs the code with names of its own."""
    return frail(f"exec({code!r}, {{'self': self}})", "__init__", on_ranks=(0, 1))


def answer(lab: Lab, rank: int) -> Any:
    return json.loads((lab.cwd / f"answer-{rank}").read_text())


def test_a_process_that_does_not_know_the_secret_is_found_out(lab: Lab) -> None:
    lab.start(FRAIL, on_both_ranks(SEND)).ended()
    chief, other = answer(lab, 0), answer(lab, 1)
    assert "has not proved within 0.2 s that it is of this gang" in other["silent"]
    assert "does not have this gang's secret" in other["stranger"]
    assert chief["friend"] == other["friend"] == "None"


def test_a_run_that_a_stranger_has_stopped_may_be_started_again(lab: Lab) -> None:
    act = "from det_jupyter.errors import PeerRefused; raise PeerRefused('a stranger')"
    gang = lab.start(FRAIL, frail(act, "__init__", on_ranks=(0,)), ranks=1)
    assert gang.wait() == [1]
    (failure,) = gang.failures()
    assert not failure.final


def test_objects_of_all_sizes_arrive(lab: Lab) -> None:
    lab.start(FRAIL, on_both_ranks(SHARE)).ended()
    assert answer(lab, 0) == answer(lab, 1) == [[0, 0], [1, 0], [0, 0]] * 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")
def test_another_user_cannot_join_before_the_real_rank(lab: Lab) -> None:
    plan, folder = lab.prepare(FRAIL, frail("pass", "__init__", on_ranks=(0,)), 2)
    gang = lab.start_plan(plan, folder)
    os.kill(gang.pids[1], signal.SIGSTOP)
    ports = gang.wait_until(lambda: listening(gang.pids[0]), "the chief waits for the other rank")
    store = Path(lab.specs(plan, folder)[0].store)
    tried = play_another_user(ports, [store, store.parent, folder.path, folder.plan])
    assert set(tried.values()) == {"refused"}, tried
    assert len(tried) == len(ports) + 4
    os.kill(gang.pids[1], signal.SIGCONT)
    assert gang.ended().reason == "completed"


def listening(pid: int) -> list[int]:
    """Return the ports on which a process listens, as everyone finds them in /proc/net/tcp."""
    found = psutil.Process(pid).net_connections("tcp")
    return [place.laddr.port for place in found if place.status == psutil.CONN_LISTEN]


def play_another_user(ports: list[int], paths: list[Path]) -> dict[str, str]:
    """Return what came of every attempt of a process without our rights."""
    looks = {str(path): as_another_user(partial(look_into, path)) for path in paths}
    joins = {f"port {port}": as_another_user(partial(join, port)) for port in ports}
    return looks | joins


def look_into(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        return "refused"
    os.close(descriptor)
    return "opened"


def join(port: int) -> str:
    """Be rank 1 before it comes: what torch's own store allows to everyone who finds its port."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = TCPStore("127.0.0.1", port, 2)
    dist.init_process_group("gloo", store=store, rank=1, world_size=2)
    return "joined as rank 1"
