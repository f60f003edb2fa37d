"""What makes a process a rank, before any code of the user runs. Knows nothing of torch.

Called first thing by the child that the zygote forked (worker/zygote.py), and by a rank that was
started afresh (worker/__main__.py), so that both are born alike:

    own process group          so that a rank and its data-loader workers die together
    dies with its parent       at once on Linux; elsewhere the lifeline does it (lifeline.py)
    environment                the user's variables, torchrun's, and only this gang's devices
    stdin, stdout, stderr      /dev/null and the run folder's output-<rank>

The working directory is `run_rank`'s to set: a missing one is a failure that the user has to read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from det_jupyter.blobs import BlobStore
from det_jupyter.system.pdeathsig import die_with
from det_jupyter.system.rundir import RunDir
from det_jupyter.wire import GangPlan, RankPlace, RankSpec, SlotView

_STREAMS = ("stdin", "stdout", "stderr")


def prepare_process(spec: RankSpec, parent_pid: int) -> None:
    """Make this process the rank that `spec` describes.

    Args:
        spec: The rank.
        parent_pid: The zygote or agent that made this process and must not be outlived.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    die_with(parent_pid)
    _redirect_streams(RunDir(Path(spec.run_dir)).output(spec.place.rank))
    os.environ.update(environment(spec.plan, spec.place, _taken_along(spec)))


def environment(
    plan: GangPlan, place: RankPlace, taken_along: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """Return the environment variables that the rank gets on top of its parent's.

    The devices win over the user's own CUDA_VISIBLE_DEVICES: they are what the scheduler gave us.

    Args:
        plan: What the gang runs.
        place: The rank's place in it.
        taken_along: Values of the variables that the configuration only names.
    """
    chosen = dict(line.split("=", 1) for line in _own_variables(plan, place) if "=" in line)
    named = {
        name: taken_along[name] for name in _own_variables(plan, place) if name in taken_along
    }
    return {**chosen, **named, **_torchrun_variables(place), **_device_variables(plan, place)}


def _own_variables(plan: GangPlan, place: RankPlace) -> list[str]:
    """Return the lines that are for the kind of device that the rank is on."""
    given = plan.config.get("environment", {}).get("environment_variables", [])
    kind = plan.slots[place.rank].kind if place.rank < len(plan.slots) else "cpu"
    lines: list[str] = given.get(kind, []) if isinstance(given, dict) else given
    return lines


def _taken_along(spec: RankSpec) -> dict[str, str]:
    digest = spec.plan.capsule.environment
    if digest is None:
        return {}
    kept = json.loads(BlobStore(Path(spec.data_dir) / "blobs").read(digest))
    values: dict[str, str] = kept["values"]
    return values


def _torchrun_variables(place: RankPlace) -> dict[str, str]:
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.group_rank),
        "GROUP_WORLD_SIZE": str(place.group_world_size),
        "MASTER_ADDR": place.master_addr,
        "MASTER_PORT": str(place.master_port),
    }


def _device_variables(plan: GangPlan, place: RankPlace) -> dict[str, str]:
    """Show the rank exactly its agent's slots of the gang, in the order of local ranks."""
    slots = _slots_beside(plan, place)
    # NVML counts devices by PCI bus, CUDA by speed unless it is told otherwise.
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(
            slot.uuid or str(slot.index) for slot in slots if slot.kind == "cuda"
        ),
    }


def _slots_beside(plan: GangPlan, place: RankPlace) -> list[SlotView]:
    """Return the slots of all ranks that are on this rank's agent."""
    if not plan.agent_ids:
        first = place.rank - place.local_rank
        return plan.slots[first : first + place.local_world_size]
    mine = plan.agent_ids[place.rank]
    homes = zip(plan.slots, plan.agent_ids, strict=True)
    return [slot for slot, agent_id in homes if agent_id == mine]


def _redirect_streams(output: Path) -> None:
    """Point the three descriptors at the run folder, and make fresh text streams for them.

    Fresh ones, because the parent's may be closed, block-buffered, or hold unwritten text.
    """
    nowhere = os.open(os.devnull, os.O_RDONLY)
    target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, descriptor in ((nowhere, 0), (target, 1), (target, 2)):
        os.dup2(source, descriptor)
    for descriptor in {nowhere, target} - {0, 1, 2}:
        os.close(descriptor)
    for name, stream in zip(_STREAMS, (_text(0, "r"), _text(1, "w"), _text(2, "w")), strict=True):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _text(descriptor: int, mode: str) -> TextIO:
    stream = open(  # noqa: SIM115  # it lives as long as the process
        descriptor, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    assert isinstance(stream, TextIOWrapper)
    return stream
