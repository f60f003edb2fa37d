"""Environment variables of ranks that run scripts, modules and commands, as in Determined.

    variables                          value
    DET_EXPERIMENT_ID, DET_TRIAL_ID,   of the plan
      DET_TRIAL_RUN_ID, DET_TRIAL_SEED,
      DET_ALLOCATION_ID
    DET_TASK_ID, DET_TASK_TYPE         the allocation's id without the run, TRIAL
    DET_AGENT_ID, DET_SLOT_IDS,        the agent, the JSON list of the gang's slots there, the
      DET_SLOT_TYPE                    kind of the first: cuda or cpu
    DET_EXPERIMENT_CONFIG,             JSON; left out, with a notice, if longer than a variable
      DET_HPARAMS                      may be
    DET_LATEST_CHECKPOINT              uuid; not set at the beginning of a trial
    DET_STEPS_COMPLETED                of that checkpoint, or 0
    DET_MASTER                         the master's address when the rank was started
    DET_CHIEF_IP, DET_USER,            the address of rank 0, the user's name, the current folder
      DET_WORKDIR
    DET_INTER_NODE_NETWORK_INTERFACE   with ranks on several computers: the network interface
    USE_TORCH_DISTRIBUTED,             as Determined's launchers set them
      USE_DEEPSPEED

These variables of Determined are left out: DET_SESSION_TOKEN and DET_USER_TOKEN (scripts print
their environment; our client finds the master by itself), DET_CLUSTER_ID, DET_CONTAINER_ID,
DET_RESOURCES_ID, DET_RESOURCES_TYPE, DET_MASTER_CERT_FILE, DET_MASTER_CERT_NAME and DET_USE_TLS
(ranks see no cluster, container or certificate), PDSH_SSH_ARGS and DET_DEEPSPEED_HOSTFILE_PATH
(ranks are not started over ssh).

A program that is started for each slot also has torchrun's variables; one that is started for each
computer has those of the computer (GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and no
RANK or WORLD_SIZE, as these would make libraries wait for ranks that the program has to start.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import (
    BEFORE_VARIABLE,
    DATA_VARIABLE,
    RUN_VARIABLE,
    SECRET_VARIABLE,
    STORE_VARIABLE,
    RunDir,
    describe_before,
)
from det_jupyter.contract.messages import MasterInfo, RankSpec
from det_jupyter.contract.values.entrypoints import Captured, Imported, Program

MAX_BYTES = 128 * 1024 - 1  # of NAME=value; Linux refuses to start a program with a longer one
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def script_variables(spec: RankSpec) -> dict[str, str]:
    """Return the variables that ranks of scripts have in addition; empty for captured code."""
    entrypoint = spec.plan.entrypoint
    if isinstance(entrypoint, Captured):
        return {}
    variables = _trial_variables(spec) | _place_variables(spec)
    launcher = entrypoint.launcher if isinstance(entrypoint, Program | Imported) else None
    if launcher == "torch_distributed":
        variables["USE_TORCH_DISTRIBUTED"] = "True"
    elif launcher == "deepspeed":
        place = spec.place
        variables |= {
            "USE_DEEPSPEED": "1",
            "LOCAL_SIZE": str(place.local_world_size),
            "CROSS_RANK": str(place.group_rank),
            "CROSS_SIZE": str(place.group_world_size),
        }
    if spec.plan.is_program:
        path = os.environ.get("PATH", os.defpath)
        variables |= {
            RUN_VARIABLE: spec.run_dir,
            DATA_VARIABLE: spec.data_dir,
            STORE_VARIABLE: spec.store,
            SECRET_VARIABLE: spec.secret,
            # `python3` is the experiment's interpreter.
            "PATH": os.pathsep.join([str(Path(spec.plan.python).parent), path]),
        }
    return {name: value for name, value in variables.items() if _fits(name, value)}


def set_variables(spec: RankSpec, variables: Mapping[str, str]) -> None:
    """Set `variables` and those of scripts in this process; `variables` take precedence."""
    before = dict(os.environ)
    os.environ.update(script_variables(spec) | dict(variables))
    if spec.plan.entrypoint.per == "computer":
        for name in _OF_A_RANK:
            os.environ.pop(name, None)
    if spec.plan.is_program:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")  # for Python programs that it starts
        os.environ.setdefault("OMP_NUM_THREADS", str(spec.place.num_threads))
    noted = describe_before(before, os.environ)
    if _fits(BEFORE_VARIABLE, noted):
        os.environ[BEFORE_VARIABLE] = noted


def left_out(spec: RankSpec) -> list[str]:
    """Return the names of variables that are not set because they would be too long."""
    if isinstance(spec.plan.entrypoint, Captured):
        return []
    return [name for name, value in _trial_variables(spec).items() if not _fits(name, value)]


def _fits(name: str, value: str) -> bool:
    return len(f"{name}={value}".encode("utf-8", "surrogateescape")) <= MAX_BYTES


def _trial_variables(spec: RankSpec) -> dict[str, str]:
    plan = spec.plan
    variables = {
        "DET_EXPERIMENT_ID": str(plan.experiment_id),
        "DET_TRIAL_ID": str(plan.trial_id),
        "DET_TRIAL_RUN_ID": str(plan.run),
        "DET_TRIAL_SEED": str(plan.seed),
        "DET_ALLOCATION_ID": plan.allocation_id,
        "DET_TASK_ID": plan.task_id,
        "DET_TASK_TYPE": "TRIAL",
        "DET_EXPERIMENT_CONFIG": json.dumps(plan.config),
        "DET_HPARAMS": json.dumps(plan.hparams),
        "DET_STEPS_COMPLETED": str(plan.steps_completed),
    }
    if plan.starting_point is not None:
        variables["DET_LATEST_CHECKPOINT"] = plan.starting_point.uuid
    return variables


def _place_variables(spec: RankSpec) -> dict[str, str]:
    plan, place = spec.plan, spec.place
    slots = plan.slots_beside(place.rank)
    variables = {
        "DET_AGENT_ID": plan.homes[place.rank],
        "DET_SLOT_IDS": json.dumps([slot.id for slot in slots if slot.id >= 0]),
        "DET_SLOT_TYPE": slots[0].kind,
        "DET_CHIEF_IP": place.master_addr,
        "DET_WORKDIR": str(plan.workplace(RunDir(Path(spec.run_dir)))),
        "DET_MASTER": _master_url(),
        "DET_USER": _user(),
        "DET_INTER_NODE_NETWORK_INTERFACE": spec.network.interface if spec.network else "",
    }
    return {name: value for name, value in variables.items() if value}


def _master_url() -> str:
    with suppress(OSError, ValueError):  # the master has just ended
        return MasterInfo.model_validate_json(paths.master_file().read_bytes()).url
    return ""


def _user() -> str:
    with suppress(KeyError):  # a user id without an entry, as in containers
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""
