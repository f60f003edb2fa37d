"""Two agents of one computer, each with a master of its own, on the same CPU places."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from det_jupyter.contract.messages import Loss, StartGang, WantSlots
from tests.integration.agent_support import FakeMaster, agent_with_master, make_plan
from tests.processes import wait_until

HERE = socket.gethostname()


def claims(master: FakeMaster) -> dict[int, str]:
    """Return the claims of the other agent that a master was told last."""
    seen = master.devices.get(HERE) or []
    return {slot: found[0].claim for slot, found in seen[-1].processes.items()} if seen else {}


@pytest.mark.usefixtures("light_torch")
def test_slot_goes_from_one_master_to_the_other_and_a_killed_agent_gives_its_slots_back(
    tmp_path: Path,
) -> None:
    variables = {
        "DET_JUPYTER_CPU_SLOTS": "2",
        "DET_JUPYTER_SHARED_FOLDER": str(tmp_path / "shared"),
    }
    stay = [["sleep", 3600]]
    with (
        agent_with_master(tmp_path / "anna", variables) as (_, anna),
        agent_with_master(tmp_path / "ben", variables) as (agent_of_ben, ben),
    ):
        anna.begin(make_plan("1.1.1", stay, slots=2))
        wait_until(lambda: claims(ben) == {0: "held", 1: "held"}, "ben's master is told")
        ben.order(StartGang(plan=make_plan("1.1.1", stay, slots=1)))
        assert ben.end_of("1.1.1").loss is Loss.TAKEN
        ben.order(WantSlots(sizes=[1], slot_ids=[0, 1]))
        wait_until(lambda: '"wants":[1]' in files(tmp_path), "ben's wish is written")
        ben.stop()
        wait_until(lambda: '"wants":[1]' not in files(tmp_path), "without a master none waits")
        ben.start()
        wait_until(lambda: ben.linked, "ben's agent is linked again")
        ben.order(WantSlots(sizes=[1], slot_ids=[0, 1]))
        wait_until(lambda: '"wants":[1]' in files(tmp_path), "ben's wish is written again")
        anna.kill("1.1.1")
        assert claims(anna) == {0: "next"}
        wait_until(lambda: claims(ben) == {}, "ben is next")
        ben.order(WantSlots(sizes=[], slot_ids=[]))
        ben.begin(make_plan("2.1.1", stay, slots=1))
        wait_until(lambda: claims(anna) == {0: "held"}, "anna's master is told")
        agent_of_ben.crash()
        wait_until(lambda: claims(anna) == {}, "the slot is free")
        anna.begin(make_plan("2.1.1", stay, slots=2))
        anna.kill("2.1.1")
    assert "1.1.1" not in files(tmp_path)


def files(folder: Path) -> str:
    """Return all that the agents have written for each other."""
    return "".join(path.read_text() for path in folder.glob("shared/*.json"))
