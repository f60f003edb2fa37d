"""Determines the agents of this process, and the slots that each of them offers.

    --agent NAME=cpu:N ...                  simulated agents with N CPU places each. The master
    DET_JUPYTER_AGENTS="NAME=cpu:N ..."     treats each as a computer of its own
    neither                                 one agent, named after the computer, with its slots

With simulated agents a trial on several computers can be tried on a laptop. They share the cores
and the memory of this computer, and their ranks connect over its loopback interface.

The slots of this computer:

    DET_JUPYTER_CPU_SLOTS      that many CPU places, whatever devices there are
    CUDA_VISIBLE_DEVICES       the devices that it lists, in its order
    neither                    all devices by PCI bus, which is NVML's order, and CUDA's own in
                               ranks (rank/process.py sets CUDA_DEVICE_ORDER); without devices,
                               a CPU place per core

In a job of Slurm they are those of the job: it sets CUDA_VISIBLE_DEVICES, and SLURM_CPUS_ON_NODE
bounds the cores where it does not bind its processes to them.

Whether the torch of a trial's interpreter supports the devices is checked when the trial starts
(agent/starting/launcher.py).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata

from det_jupyter.agent.devices.nvml import cuda_devices
from det_jupyter.contract.host.inheritance import JOB_CORES_VARIABLE
from det_jupyter.contract.messages import SlotView

logger = logging.getLogger(__name__)

AGENTS_VARIABLE = "DET_JUPYTER_AGENTS"
AGENTS_OPTION = "--agent"
CPU_SLOTS_VARIABLE = "DET_JUPYTER_CPU_SLOTS"
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
_OFFER = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=cpu:(?P<places>[1-9][0-9]{0,3})")
_MIG = "MIG-"  # prefix of the UUID of a part of a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An agent and the slots that it offers."""

    agent_id: str
    slots: list[SlotView]
    problems: tuple[str, ...] = ()  # sentences: simulated agents that are ignored, limits


def offered_agents(
    options: Sequence[str],
    environ: Mapping[str, str],
    *,
    hostname: str,
    problems: Sequence[str] = (),
) -> list[Offer]:
    """Return the agents of this process: simulated ones if any are requested, else one.

    Args:
        options: Values of `--agent`; they take precedence over the variable.
        hostname: Id of the agent if no simulated one is requested.
        problems: Other problems of the slots, which are reported together with those found here.
    """
    where = AGENTS_OPTION if options else AGENTS_VARIABLE
    words = options or environ.get(AGENTS_VARIABLE, "").split()
    simulated, ignored = simulated_agents(words, where=where)
    offers = simulated or [Offer(agent_id=hostname, slots=discover_slots(environ))]
    is_chosen = bool(simulated) or CPU_SLOTS_VARIABLE in environ
    found = [*ignored, *problems, *([] if is_chosen else _rocm_problems(offers[0]))]
    for problem in found:
        logger.error("%s", problem)
    return [replace(offers[0], problems=tuple(found)), *offers[1:]]


def _rocm_problems(offer: Offer) -> list[str]:
    """Return a sentence if the torch of this interpreter is for GPUs that are not offered."""
    with suppress(metadata.PackageNotFoundError):
        if offer.slots[0].kind == "cpu" and "+rocm" in metadata.version("torch"):
            return [
                "GPUs of AMD (ROCm) are not supported: the slots of this computer are CPU places"
            ]
    return []


def simulated_agents(words: Sequence[str], *, where: str) -> tuple[list[Offer], list[str]]:
    """Parse simulated agents; also return a problem for each word that is not valid.

    >>> offers, _ = simulated_agents(["a=cpu:2", "b=cpu:8"], where="")
    >>> [(offer.agent_id, len(offer.slots)) for offer in offers]
    [('a', 2), ('b', 8)]
    """
    offers: dict[str, Offer] = {}
    problems: list[str] = []
    for word in words:
        match = _OFFER.fullmatch(word)
        if match is None:
            problems.append(f"got {word!r}, expected NAME=cpu:N, such as left=cpu:8")
        elif match["name"] in offers:
            problems.append(f"got {word!r}, but there is an agent {match['name']} already")
        else:
            slots = cpu_places(int(match["places"]))
            offers[match["name"]] = Offer(agent_id=match["name"], slots=slots)
    return list(offers.values()), [f"{where}: {problem}; ignored" for problem in problems]


def discover_slots(environ: Mapping[str, str] = os.environ) -> list[SlotView]:
    """Return the slots of this computer, numbered from 0."""
    if num_places := _requested_cpu_slots(environ):
        return cpu_places(num_places)
    devices = cuda_devices()
    if devices and CUDA_VARIABLE in environ:
        devices = visible_devices(devices, environ[CUDA_VARIABLE])
    if devices:
        return [device.model_copy(update={"id": id}) for id, device in enumerate(devices)]
    return cpu_places(_num_cores(environ))


def threads_per_slot(num_slots: int) -> int:
    """Return the number of threads of a rank, so that all slots together use each core once."""
    return max(1, _num_cores(os.environ) // num_slots)


def cpu_places(num_places: int) -> list[SlotView]:
    """Return that many CPU places, numbered from 0."""
    return [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(num_places)]


def visible_devices(devices: Sequence[SlotView], variable: str) -> list[SlotView]:
    """Return the devices in CUDA_VISIBLE_DEVICES, in its order, by the rules of CUDA.

    A word is an index or a prefix of a UUID. The first word that matches no device ends the list
    (so "-1" and "" hide all), and a device that is listed twice hides all.

    >>> gpus = [SlotView(id=i, kind="cuda", index=i, name="", uuid=f"GPU-{i}f") for i in range(3)]
    >>> [device.index for device in visible_devices(gpus, "2,GPU-0,-1,1")]
    [2, 0]
    """
    chosen: list[SlotView] = []
    for word in variable.split(","):
        device = _find_device(devices, word.strip())
        if device is None:
            _log_no_device(word.strip())
            break
        chosen.append(device)
    if len({device.index for device in chosen}) < len(chosen):
        logger.warning("%s: %r names a device twice; all are hidden", CUDA_VARIABLE, variable)
        return []
    return chosen


def _log_no_device(word: str) -> None:
    if word.startswith(_MIG):
        logger.error(
            "%s: %r is a part of a GPU (MIG), which is not supported; it and what follows are "
            "hidden. Name whole GPUs, by index or GPU-…, and switch MIG off for them: "
            "nvidia-smi -mig 0",
            CUDA_VARIABLE,
            word,
        )
    elif word not in ("", "-1"):
        logger.warning(
            "%s: %r names no device; it and what follows are hidden", CUDA_VARIABLE, word
        )


def _find_device(devices: Sequence[SlotView], word: str) -> SlotView | None:
    if word.isdecimal():
        return next((device for device in devices if device.index == int(word)), None)
    matches = [device for device in devices if word and device.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def _requested_cpu_slots(environ: Mapping[str, str]) -> int:
    """Return the number of CPU places in DET_JUPYTER_CPU_SLOTS; 0 if unset or not valid."""
    given = environ.get(CPU_SLOTS_VARIABLE)
    if given is None:
        return 0
    if given.strip().isdecimal() and int(given) > 0:
        return int(given)
    logger.error(
        "%s: got %r, expected a whole number of at least 1; it is ignored",
        CPU_SLOTS_VARIABLE,
        given,
    )
    return 0


def _num_cores(environ: Mapping[str, str]) -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:
        num_cores = os.cpu_count() or 1
    given = environ.get(JOB_CORES_VARIABLE, "")
    return min(num_cores, int(given)) if given.isdecimal() and int(given) > 0 else num_cores
