"""A machine under test with a clock, and short constructors of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import (
    AgentCommand,
    AllocationState,
    Capsule,
    GangExited,
    GangStarted,
    RankProcess,
    RunReport,
    SlotView,
)
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    FirstStep,
    RankFailure,
    RankStarted,
    RunEnded,
    TargetReached,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.master.machine.machine import Command, Machine, ToAgent
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.events import (
    AgentRegistered,
    Event,
    ExperimentSubmitted,
    RecordArrived,
    ValidationReported,
)
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.views.wait_reasons import WaitReasons
from tests.unit.master.machine_invariants import check_machine

CAPSULE = Capsule(entrypoint="Digits", payload="a" * 64, sources="b" * 64)


class World:
    """A machine that handles one event per second, and is checked after each."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.now = 100.0

    def tell(self, *told: Event) -> list[Command]:
        """Handle events; return the commands of the last one."""
        commands: list[Command] = []
        for event in told:
            self.now += 1.0
            before = parts_of(self.machine.state)
            commands = self.machine.handle(event, self.now)
            check_machine(self.machine)
            check_changes(self.machine, before)
        return commands

    def order(self, command: AgentCommand, agent_id: str = "box") -> ToAgent:
        """Return the command that the last event is expected to issue."""
        return ToAgent(agent_id=agent_id, command=command, cause=self.machine.state.seq)

    def experiment(self, experiment_id: int = 1) -> Experiment:
        return self.machine.state.experiments[experiment_id]

    def trial(self, trial_id: int = 1) -> Trial:
        return self.machine.state.trials[trial_id]

    def allocation(self, trial_id: int = 1) -> Allocation:
        allocation = self.trial(trial_id).allocation
        assert allocation is not None
        return allocation

    def waiting_for(self, trial_id: int = 1) -> str | None:
        """Return why a trial does not run, as its view shows it."""
        return reasons_of(self.machine, self.now).sentence(self.trial(trial_id))

    def allocation_state(self, trial_id: int = 1) -> AllocationState:
        return self.allocation(trial_id).state


def reasons_of(machine: Machine, now: float = 0.0) -> WaitReasons:
    return WaitReasons(
        machine,
        progress={},
        now=now,
        most=16,
        zone=UTC,
    )


Parts = dict[str, dict[Any, str]]


def parts_of(state: MachineState) -> Parts:
    """Return all experiments, trials, checkpoints and models as JSON."""
    return {
        "experiments": {id: part.model_dump_json() for id, part in state.experiments.items()},
        "trials": {id: part.model_dump_json() for id, part in state.trials.items()},
        "checkpoints": {id: part.model_dump_json() for id, part in state.checkpoints.items()},
        "models": {id: part.model_dump_json() for id, part in state.models.items()},
    }


def check_changes(machine: Machine, before: Parts) -> None:
    """Assert that `changes()` contains everything that the last event has changed."""
    for kind, texts in parts_of(machine.state).items():
        changed = {id for id, text in texts.items() if before[kind].get(id) != text}
        assert changed <= getattr(machine.changes(), kind), f"{kind} that changed unseen"


def slot(number: int) -> SlotView:
    return SlotView(id=number, kind="cpu", index=number, name="CPU")


def registered(
    slots: int = 4,
    runs: Mapping[str, bool] | None = None,
    *,
    agent_id: str = "box",
    session: str = "s1",
    port: int = 0,
) -> AgentRegistered:
    """Return a registration; `port` is given for an agent on another computer.

    `runs` maps allocation ids to whether their ranks are alive.
    """
    return AgentRegistered(
        agent_id=agent_id,
        session=session,
        hostname=agent_id,
        pid=7,
        slots=[slot(number) for number in range(slots)],
        runs=[RunReport(allocation_id=id, alive=alive) for id, alive in (runs or {}).items()],
        is_remote=port > 0,
        address=f"{agent_id}.lan" if port else "",
        port=port,
    )


def make_config(
    name: str = "digits",
    slots: int = 2,
    *,
    smaller_is_better: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    resources = {"slots_per_trial": slots} | changes.pop("resources", {})
    document: dict[str, Any] = {
        "name": name,
        "entrypoint": "Digits",
        "searcher": {
            "name": "single",
            "metric": "error",
            "smaller_is_better": smaller_is_better,
            "max_length": {"batches": 100},
        },
        "resources": resources,
        "hyperparameters": {"global_batch_size": 8, "lr": 0.1},
    }
    return parse_config(document | changes, default_seed=5).to_document()


def submitted(name: str = "digits", slots: int = 2, **changes: Any) -> ExperimentSubmitted:
    return ExperimentSubmitted(
        config=make_config(name, slots, **changes),
        capsule=CAPSULE,
        python="/usr/bin/python3",
        cwd="/home/user",
        notebook="digits.ipynb",
    )


def started(
    allocation_id: str = "1.1.1", ranks: int | Iterable[int] = 2, note: str = "forked"
) -> GangStarted:
    """Return the report that ranks have started: these, or the first so many."""
    return GangStarted(
        allocation_id=allocation_id,
        at=50.0,
        ranks=[
            RankProcess(
                rank=rank,
                pid=1000 + rank,
                connection_file=f"/runs/kernel-{rank}.json",
                output_file=f"/runs/output-{rank}",
            )
            for rank in (range(ranks) if isinstance(ranks, int) else ranks)
        ],
        note=note,
    )


def up(rank: int, allocation_id: str = "1.1.1") -> RecordArrived:
    record = RankStarted(at=51.0, pid=1000 + rank, backend="gloo", device="cpu")
    return RecordArrived(allocation_id=allocation_id, rank=rank, record=record)


def running(allocation_id: str = "1.1.1", ranks: int = 2) -> list[Event]:
    """Return events that make an allocation RUNNING."""
    return [started(allocation_id, ranks), *(up(rank, allocation_id) for rank in range(ranks))]


def first_step(at: float = 52.0, allocation_id: str = "1.1.1") -> RecordArrived:
    record = FirstStep(at=at, steps_completed=1)
    return RecordArrived(allocation_id=allocation_id, rank=0, record=record)


def saved(
    steps: int, uuid: str = "", allocation_id: str = "1.1.1", *, on_request: bool = False
) -> RecordArrived:
    uuid = uuid or f"ckpt{steps}"
    record = CheckpointSaved(
        at=60.0 + steps,
        uuid=uuid,
        steps_completed=steps,
        path=f"/checkpoints/{uuid}",
        size_bytes=1000,
        metadata={},
        on_request=on_request,
    )
    return RecordArrived(allocation_id=allocation_id, rank=0, record=record)


def validated(
    steps: int, metric: float | None, allocation_id: str = "1.1.1"
) -> ValidationReported:
    return ValidationReported(allocation_id=allocation_id, steps_completed=steps, metric=metric)


def ended(
    reason: Any, steps: int = 100, message: str = "", allocation_id: str = "1.1.1", rank: int = 0
) -> RecordArrived:
    record = RunEnded(at=70.0, reason=reason, steps_completed=steps, message=message)
    return RecordArrived(allocation_id=allocation_id, rank=rank, record=record)


def reached(
    steps: int = 100, allocation_id: str = "1.1.1", target: Length | None = None
) -> RecordArrived:
    record = TargetReached(
        at=69.0, steps_completed=steps, target=target or Length("batches", steps)
    )
    return RecordArrived(allocation_id=allocation_id, rank=0, record=record)


def completed(steps: int = 100, allocation_id: str = "1.1.1") -> list[Event]:
    """Return records of a run that has trained to its last target."""
    return [reached(steps, allocation_id), ended("completed", steps, allocation_id=allocation_id)]


def failed(
    error: str = "ValueError: no",
    *,
    rank: int = 0,
    at: float = 71.0,
    final: bool = False,
    no_room: bool = False,
    full_folder: str = "",
    allocation_id: str = "1.1.1",
) -> RecordArrived:
    record = RankFailure(
        at=at,
        rank=rank,
        error=error,
        traceback=f"Traceback of {error}",
        where="Cell In[5], line 12, in train_batch",
        final=final,
        no_room=no_room,
        full_folder=full_folder,
    )
    return RecordArrived(allocation_id=allocation_id, rank=rank, record=record)


def exited(
    allocation_id: str = "1.1.1", codes: Mapping[int, int | None] | None = None, **facts: Any
) -> GangExited:
    exit_codes: dict[int, int | None] = {0: 0, 1: 0} if codes is None else dict(codes)
    return GangExited(allocation_id=allocation_id, at=80.0, exit_codes=exit_codes, **facts)
