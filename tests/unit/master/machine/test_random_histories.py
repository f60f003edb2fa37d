"""The machine under random events, legal and illegal: invariants that always hold.

After every event: the invariants; a refused event has changed nothing; what was terminal is as it
was; every command fits the state. At the end: restoring snapshots on the way and replaying
everything from the beginning come to the same state by the same commands.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    Archive,
    Cancel,
    ChangeQueue,
    ChangeResources,
    ChangeSearch,
    ChangeTrial,
    CloseRun,
    CreateModel,
    Delete,
    DeleteVersion,
    DeviceFault,
    DeviceProcess,
    DropCheckpoints,
    Kill,
    KillGang,
    KillTrial,
    MoveInQueue,
    Pause,
    ProfileTrial,
    QueueChange,
    RegisterVersion,
    SetPools,
    SetRetention,
    SignalGang,
    StartGang,
    SwitchSlots,
    Unarchive,
)
from det_jupyter.contract.run.journal import ChangeMade, LastStepSaved, TraceSaved
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.machine.machine import Command, Machine, ToAgent
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.master.machine.model.events import (
    AgentAway,
    AgentLost,
    AgentRemoved,
    CheckpointsDeleted,
    ClockStepped,
    ClustersChanged,
    ContentSetAside,
    ContinueRequested,
    DevicesReported,
    Event,
    ExperimentDeleted,
    LogMatched,
    RecordArrived,
    SlotsSettled,
    UnmanagedHeard,
    parse_event,
)
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.views.pool_views import cluster_view, job_entries
from tests.unit.master.machine.handlers.test_unmanaged import PLACE, PROCESS, start
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    check_changes,
    completed,
    ended,
    exited,
    failed,
    first_step,
    parts_of,
    reached,
    reasons_of,
    registered,
    running,
    saved,
    started,
    submitted,
    up,
    validated,
)

PORTS = {"a": 0, "b": 7001, "c": 7002}  # b and c are on other computers
AGENTS = st.sampled_from(["a", "b", "c"])
STEPS = st.integers(0, 50)
METRICS = st.sampled_from([None, 0.0, 0.5, -1.0, math.nan, math.inf])
REQUESTS = st.sampled_from([Pause, Activate, Cancel, Kill])
REASONS = st.sampled_from(["completed", "stopped", "preempted", "invalid_hp"])
LR = {"type": "log", "base": 10, "minval": -4, "maxval": -1}
LENGTH = {"max_length": {"batches": 16}}
HALVING = LENGTH | {"max_trials": 6, "divisor": 2, "max_concurrent_trials": 2}
SEARCHERS: list[dict[str, Any]] = [
    {"name": "single", **LENGTH},
    {"name": "random", **LENGTH, "max_trials": 3, "max_concurrent_trials": 2},
    {"name": "async_halving", **HALVING, "num_rungs": 3},
    {"name": "async_halving", **HALVING, "num_rungs": 3, "stop_once": True},
    {"name": "adaptive_asha", **HALVING},
]
EXITS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"killed": True},
        {"lost": True},
        {"first_failed": 0, "code": 1},
        {"first_failed": 0, "code": -9},
        {"error": "could not be started"},
        {"error": "could not be started", "error_is_final": False},
    ]
)


# What may change something that is over.
WAKING = (
    Archive, CheckpointsDeleted, DropCheckpoints, ContinueRequested, Delete,
    ExperimentDeleted, SetRetention, Unarchive,
)  # fmt: skip
POLICIES: list[dict[str, Any]] = [
    {"type": "priority"},
    {"type": "priority", "preemption": True},
    {"type": "fair_share"},
    {"type": "fair_share", "preemption": True},
    {"type": "round_robin"},
    {"type": "priority", "preemption": True, "allow_heterogeneous_fits": True},
    {"type": "priority", "fitting_policy": "worst"},
]
WAITING_CAUSES = {
    "slots", "turn", "max_slots", "occupied", "disabled", "lost", "no_agent", "agent_gone",
    "impossible",
}  # fmt: skip
PRIORITIES = st.sampled_from([1, 20, 42, 99])


class Life(RuleBasedStateMachine):
    """Random events of agents and ranks, and what users ask of experiments."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.now = 0.0
        self.history: list[tuple[float, str]] = []
        self.commands: list[Command] = []
        self.ended: dict[tuple[str, int], str] = {}

    def tell(self, event: Event) -> None:
        self.now += 1.0
        before = self.machine.dump()
        parts = parts_of(self.machine.state)
        try:
            commands = self.machine.handle(event, self.now)
        except (ConfigError, Conflict, NotFound):
            assert self.machine.dump() == before
            assert self.machine.changes().trials == set()
            assert self.machine.changes().experiments == set()
            return
        self.history.append((self.now, event.model_dump_json()))
        if isinstance(event, WAKING):
            self.ended.clear()
        check_changes(self.machine, parts)
        self.commands += commands
        for command in commands:
            self.check_command(command)

    def check_command(self, command: Command) -> None:
        assert command.cause == self.machine.state.seq
        if not isinstance(command, ToAgent):
            return
        match command.command:
            case StartGang(plan=plan):
                allocation = self.machine.state.trials[plan.trial_id].allocation
                assert allocation is not None
                assert (allocation.id, allocation.state) == (
                    plan.allocation_id, AllocationState.STARTING,
                )  # fmt: skip
                assert allocation.slots == plan.slots
                (part,) = [p for p in allocation.living_parts if p.agent_id == command.agent_id]
                for rank in part.ranks:
                    offered = self.machine.state.agents[plan.agent_ids[rank]].slots
                    assert plan.slots[rank].id < 0 or plan.slots[rank] in offered
            case SignalGang(allocation_id=allocation_id):
                found = self.machine.state.find_allocation(allocation_id)
                assert found is not None
                assert found[1].state is AllocationState.STOPPING
            case KillGang(allocation_id=allocation_id):
                found = self.machine.state.find_allocation(allocation_id)
                assert found is None or found[1].is_leaving
            case CloseRun(allocation_id=allocation_id):
                assert self.machine.state.find_allocation(allocation_id) is None

    def run_ids(self) -> list[str]:
        """Return the ids of all runs so far, and of one that does not exist."""
        trials = self.machine.state.trials.values()
        known = [f"{t.experiment_id}.{t.id}.{run}" for t in trials for run in range(1, t.runs + 1)]
        return [*known, "77.77.1"]

    def slots_of(self, run_id: str) -> int:
        experiment = self.machine.state.experiments.get(int(run_id.split(".")[0]))
        return max(1, experiment.slots_per_trial) if experiment is not None else 1

    def some_part(self, data: st.DataObject, run_id: str) -> list[int]:
        """Return the ranks of a part of a run."""
        found = self.machine.state.find_allocation(run_id)
        if found is None:
            return [*range(self.slots_of(run_id))]
        return data.draw(st.sampled_from([part.ranks for part in found[1].parts]))

    def some_run(self, data: st.DataObject) -> str:
        """Return a run, most often the current one of a trial."""
        trials = self.machine.state.trials.values()
        present = [t.allocation.id for t in trials if t.allocation and t.allocation.holds_slots]
        choices = st.sampled_from(self.run_ids())
        if present:
            choices = st.sampled_from(present) | st.sampled_from(present) | choices
        return data.draw(choices)

    @rule(
        agent_id=AGENTS,
        slots=st.none() | st.lists(st.integers(0, 4), max_size=2),
        enabled=st.booleans(),
        drain=st.booleans(),
    )
    def switch(self, agent_id: str, slots: list[int] | None, enabled: bool, drain: bool) -> None:
        self.tell(SwitchSlots(agent_id=agent_id, slots=slots, enabled=enabled, drain=drain))

    @rule()
    def let_slots_settle(self) -> None:
        self.now += 11.0
        self.tell(SlotsSettled())

    @rule(request_=REQUESTS, experiment_id=st.integers(1, 6))
    def ask(self, request_: type[Pause], experiment_id: int) -> None:
        self.tell(request_(experiment_id=experiment_id))

    @rule(experiment_id=st.integers(1, 6))
    def pause_at_once(self, experiment_id: int) -> None:
        self.tell(Pause(experiment_id=experiment_id, at_once=True))

    @rule(data=st.data(), agent_id=AGENTS, slots=st.integers(1, 4))
    def register(self, data: st.DataObject, agent_id: str, slots: int) -> None:
        # An agent cannot have a run that was never started there.
        not_here = {
            t.allocation.id
            for t in self.machine.state.trials.values()
            if t.allocation is not None
            and agent_id not in [part.agent_id for part in t.allocation.parts]
        }
        possible = [id for id in self.run_ids() if id not in not_here]
        runs = data.draw(st.dictionaries(st.sampled_from(possible), st.booleans(), max_size=4))
        self.tell(registered(slots, runs, agent_id=agent_id, port=PORTS[agent_id]))

    @rule(agent_id=AGENTS, problem=st.sampled_from(["", "it is stopped"]))
    def go_silent(self, agent_id: str, problem: str) -> None:
        self.tell(AgentAway(agent_id=agent_id, problem=problem))

    @rule(agent_id=AGENTS)
    def lose(self, agent_id: str) -> None:
        self.tell(AgentLost(agent_id=agent_id))

    @rule(agent_id=AGENTS)
    def remove(self, agent_id: str) -> None:
        self.tell(AgentRemoved(agent_id=agent_id))

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        self.tell(started(run_id, self.some_part(data, run_id)))

    @rule(data=st.data())
    def come_up(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        for rank in self.some_part(data, run_id):
            self.tell(up(rank, run_id))

    @rule(data=st.data())
    def get_going(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        found = self.machine.state.find_allocation(run_id)
        for part in found[1].parts if found is not None else []:
            self.tell(started(run_id, part.ranks))
            for rank in part.ranks:
                self.tell(up(rank, run_id))
        self.tell(first_step(allocation_id=run_id))

    @rule(data=st.data(), steps=STEPS, metric=METRICS)
    def validate(self, data: st.DataObject, steps: int, metric: float | None) -> None:
        self.tell(validated(steps, metric, self.some_run(data)))

    @rule(data=st.data(), steps=STEPS)
    def save(self, data: st.DataObject, steps: int) -> None:
        self.tell(saved(steps, f"uuid{len(self.history)}", self.some_run(data)))

    @rule(data=st.data(), steps=STEPS, is_stored=st.booleans(), is_over=st.booleans())
    def survive(self, data: st.DataObject, steps: int, is_stored: bool, is_over: bool) -> None:
        """Kill a rank of a part; ranks of some parts save the last step."""
        run_id = self.some_run(data)
        ranks = self.some_part(data, run_id)
        for rank in data.draw(st.sampled_from([[], ranks[:1], [ranks[0], ranks[-1]], [0]])):
            if is_stored:
                self.tell(saved(steps, f"uuid{len(self.history)}", run_id))
            record = LastStepSaved(at=self.now, steps_completed=steps, repeats=1)
            self.tell(RecordArrived(allocation_id=run_id, rank=rank, record=record))
        if is_over:
            codes = dict.fromkeys(ranks, 1) | {ranks[0]: -9}
            self.tell(exited(run_id, codes=codes, first_failed=ranks[0], batch=steps))

    @rule(data=st.data(), is_current=st.booleans())
    def reach(self, data: st.DataObject, is_current: bool) -> None:
        run_id = self.some_run(data)
        found = self.machine.state.find_allocation(run_id)
        target = found[0].target if found and is_current else Length("batches", 4)
        self.tell(reached(target.amount if target else 1, run_id, target))

    @rule(data=st.data())
    def reach_and_complete(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        found = self.machine.state.find_allocation(run_id)
        if found and found[0].target:
            steps = found[0].target.amount
            self.tell(validated(steps, data.draw(METRICS), run_id))
            self.tell(saved(steps, f"uuid{len(self.history)}", run_id))
            self.tell(reached(steps, run_id))
            self.tell(ended("completed", steps, allocation_id=run_id))

    @rule(data=st.data(), reason=REASONS)
    def end_run(self, data: st.DataObject, reason: str) -> None:
        self.tell(ended(reason, allocation_id=self.some_run(data)))

    @rule(data=st.data(), final=st.booleans())
    def fail(self, data: st.DataObject, final: bool) -> None:
        self.tell(failed(final=final, allocation_id=self.some_run(data)))

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.tell(first_step(allocation_id=self.some_run(data)))

    @rule(data=st.data(), facts=EXITS)
    def exit(self, data: st.DataObject, facts: dict[str, Any]) -> None:
        run_id = self.some_run(data)
        ranks = self.some_part(data, run_id)
        if "first_failed" in facts:
            facts = facts | {"first_failed": ranks[0]}
        facts = dict(facts)
        code = facts.pop("code", 0)
        self.tell(exited(run_id, codes=dict.fromkeys(ranks, 0) | {ranks[0]: code}, **facts))

    @rule()
    def restart_from_a_snapshot(self) -> None:
        text = self.machine.dump()
        self.machine = Machine(MachineState.model_validate_json(text))

    @invariant()
    def everything_holds(self) -> None:
        check_machine(self.machine)

    @invariant()
    def whoever_does_not_run_can_be_told_why(self) -> None:
        reasons = reasons_of(self.machine, self.now)
        for trial in self.machine.state.trials.values():
            reason = reasons.of(trial)
            assert reason.sentence
            allocation = trial.allocation
            waits = allocation is not None and allocation.state is AllocationState.QUEUED
            assert waits == (reason.cause in WAITING_CAUSES), reason
            assert waits == (reason.position is not None), reason

    @invariant()
    def the_queue_and_the_slots_can_be_shown(self) -> None:
        reasons = reasons_of(self.machine, self.now)
        shown = cluster_view(self.machine, reasons.of, now=self.now, limit=1000)
        assert shown.num_waiting == len(shown.queue)
        held = sum(job.num_running for job in job_entries(self.machine))
        assert held == sum(trial.holds_slots for trial in self.machine.state.trials.values())
        experiments = self.machine.state.experiments.values()
        by_hand = [each.id for each in experiments if each.is_unmanaged]
        trials = self.machine.state.trials.values()
        by_hand_held = [t.id for t in trials if t.holds_slots and t.experiment_id in by_hand]
        assert held == len(shown.holding) + len(by_hand_held)

    @invariant()
    def what_is_over_stays_as_it_was(self) -> None:
        state = self.machine.state
        parts: list[Experiment | Trial] = [*state.experiments.values(), *state.trials.values()]
        for part in parts:
            key = (type(part).__name__, part.id)
            if part.state.is_terminal:
                # When the experiment ends, files of trials that ended before are deleted as well.
                text = part.model_dump_json(exclude={"checkpoints"})
                assert self.ended.setdefault(key, text) == text
            else:
                assert key not in self.ended

    @invariant()
    def the_number_of_the_last_event_is_their_count(self) -> None:
        assert self.machine.state.seq == len(self.history)

    def teardown(self) -> None:
        replayed = Machine()
        commands = [
            command
            for now, text in self.history
            for command in replayed.handle(parse_event(text), now)
        ]
        assert replayed.dump() == self.machine.dump()
        assert commands == self.commands


class RandomLife(Life):
    """The same, and all that users can do besides."""

    @rule(
        slots=st.integers(0, 6),
        more=st.sampled_from([0, 0, 1, 4]),
        priority=PRIORITIES,
        max_slots=st.none() | st.none() | st.integers(1, 8),
        is_single_node=st.booleans(),
        pool=st.sampled_from(["", "", "", "night"]),
        queue_anyway=st.booleans(),
        is_paused=st.booleans(),
        max_restarts=st.integers(0, 2),
        smaller=st.booleans(),
        searcher=st.sampled_from(SEARCHERS),
    )
    def submit(
        self,
        slots: int,
        more: int,
        priority: int,
        max_slots: int | None,
        is_single_node: bool,
        pool: str,
        queue_anyway: bool,
        is_paused: bool,
        max_restarts: int,
        smaller: bool,
        searcher: dict[str, Any],
    ) -> None:
        searcher = searcher | {"metric": "error", "smaller_is_better": smaller}
        resources: dict[str, Any] = {"priority": priority, "resource_pool": pool}
        if max_slots is not None:
            resources["max_slots"] = max(max_slots, slots)
        if slots and more:
            resources["slots_per_trial"] = {"min": slots, "max": slots + more}
        event = submitted(
            slots=slots,
            max_restarts=max_restarts,
            searcher=searcher,
            hyperparameters={"global_batch_size": 8, "lr": LR},
            resources=resources | {"is_single_node": is_single_node},
        )
        changes = {"queue_anyway": queue_anyway, "is_paused": is_paused}
        self.tell(event.model_copy(update=changes))

    @rule(
        experiment_id=st.integers(1, 6),
        priority=st.none() | PRIORITIES,
        weight=st.none() | st.sampled_from([0.0, 0.5, 3.0]),
        max_slots=st.none() | st.just("none") | st.integers(0, 8),
        pool=st.sampled_from([None, None, "default", "night"]),
    )
    def change_resources(
        self,
        experiment_id: int,
        priority: int | None,
        weight: float | None,
        max_slots: Any,
        pool: str | None,
    ) -> None:
        self.tell(
            ChangeResources(
                experiment_id=experiment_id,
                priority=priority,
                weight=weight,
                max_slots=max_slots,
                resource_pool=pool,
            )
        )

    @rule(
        name=st.sampled_from(["a", "b"]),
        num_ranks=st.integers(1, 2),
        resume=st.sampled_from([True, True, False]),
        begun_from=st.sampled_from([None, None, "", "ckpt20"]),
    )
    def start_by_hand(
        self, name: str, num_ranks: int, resume: bool, begun_from: str | None
    ) -> None:
        ranks = [PROCESS.model_copy(update={"rank": rank}) for rank in range(num_ranks)]
        key = f"run {self.machine.state.seq}"
        self.tell(start(key, name=name, resume=resume, begun_from=begun_from,
                        slots=[PLACE] * num_ranks, ranks=ranks))  # fmt: skip
        for experiment in self.machine.state.experiments.values():
            if experiment.is_unmanaged and not experiment.state.is_terminal:  # it goes on
                self.ended.pop(("Experiment", experiment.id), None)
                for trial in self.machine.state.trials_of(experiment):
                    self.ended.pop(("Trial", trial.id), None)

    @rule(data=st.data(), silent_since=st.sampled_from([None, 60.0, 60.0]))
    def hear(self, data: st.DataObject, silent_since: float | None) -> None:
        runs = [
            trial.allocation.id
            for experiment in self.machine.state.experiments.values()
            if experiment.is_unmanaged
            for trial in self.machine.state.trials_of(experiment)
            if trial.allocation is not None and trial.allocation.holds_slots
        ]
        if runs:  # as a master hears of no other
            run = data.draw(st.sampled_from(runs))
            self.tell(UnmanagedHeard(allocation_id=run, silent_since=silent_since))

    @rule(
        experiment_id=st.integers(1, 6),
        ahead_of=st.none() | st.integers(1, 6),
        behind=st.none() | st.integers(1, 6),
    )
    def move(self, experiment_id: int, ahead_of: int | None, behind: int | None) -> None:
        self.tell(MoveInQueue(experiment_id=experiment_id, ahead_of=ahead_of, behind=behind))

    @rule(
        first=st.integers(1, 6),
        second=st.integers(1, 6),
        priority=st.sampled_from([5, 42, 100]),
        pool=st.sampled_from(["default", "night"]),
    )
    def change_queue(self, first: int, second: int, priority: int, pool: str) -> None:
        requests: list[ChangeResources | MoveInQueue] = [
            ChangeResources(experiment_id=first, resource_pool=pool),
            ChangeResources(experiment_id=first, priority=priority),
            MoveInQueue(experiment_id=second, behind=first),
        ]
        changes = [QueueChange(where="", request=each) for each in requests]
        self.tell(ChangeQueue(changes=changes))

    @rule(
        agent_id=AGENTS,
        slots=st.sets(st.integers(0, 4), max_size=2),
        claim=st.sampled_from(["", "", "held", "next"]),
    )
    def report_strangers(
        self, agent_id: str, slots: set[int], claim: Literal["", "held", "next"]
    ) -> None:
        stranger = [DeviceProcess(pid=7, command="python train.py", claim=claim)]
        processes = dict.fromkeys(slots, stranger)
        shared = DevicesReported(agent_id=agent_id, processes=processes, is_shared=bool(claim))
        self.tell(shared)

    @rule(agent_id=AGENTS, slots=st.sets(st.integers(0, 4), max_size=2))
    def report_lost_devices(self, agent_id: str, slots: set[int]) -> None:
        lost = {slot: DeviceFault(index=slot, at=self.now, xid=79) for slot in slots}
        self.tell(DevicesReported(agent_id=agent_id, processes={}, lost=lost))

    @rule(
        default=st.sampled_from(POLICIES),
        night=st.none() | st.sampled_from(POLICIES),
        shares=st.booleans(),
    )
    def set_pools(
        self, default: dict[str, Any], night: dict[str, Any] | None, shares: bool
    ) -> None:
        pools: list[dict[str, Any]] = [
            {"pool_name": "default", "scheduler": default, "share_devices": shares}
        ]
        if night is not None:
            pools.append({"pool_name": "night", "agents": ["c*"], "scheduler": night})
        self.tell(SetPools(pools=pools))

    @rule(experiment_id=st.integers(1, 6), is_archived=st.booleans())
    def archive(self, experiment_id: int, is_archived: bool) -> None:
        self.tell((Archive if is_archived else Unarchive)(experiment_id=experiment_id))

    @rule(experiment_id=st.integers(1, 6), error=st.sampled_from(["", "disk"]))
    def delete(self, experiment_id: int, error: str) -> None:
        self.tell(Delete(experiment_id=experiment_id))
        self.tell(ExperimentDeleted(experiment_id=experiment_id, error=error))

    @rule(experiment_id=st.integers(1, 6))
    def go_on(self, experiment_id: int) -> None:
        if experiment := self.machine.state.experiments.get(experiment_id):
            self.tell(ContinueRequested(experiment_id=experiment_id, config=experiment.config))

    @rule(experiment_id=st.integers(1, 6), kept=st.tuples(*[st.integers(0, 2)] * 3))
    def keep_others(self, experiment_id: int, kept: tuple[int, int, int]) -> None:
        self.tell(
            SetRetention(
                experiment_id=experiment_id,
                save_experiment_best=kept[0],
                save_trial_best=kept[1],
                save_trial_latest=kept[2],
            )
        )

    @rule(pick=st.integers(0, 5), num=st.integers(1, 2), globs=st.sampled_from([[], ["*.pt"]]))
    def delete_some(self, pick: int, num: int, globs: list[str]) -> None:
        uuids = sorted(self.machine.state.checkpoints)[pick : pick + num]
        if uuids:
            self.tell(DropCheckpoints(uuids=uuids, globs=globs))

    @rule(pick=st.integers(0, 9))
    def checkpoints_are_deleted(self, pick: int) -> None:
        orders = [each for each in self.commands if isinstance(each, DeleteCheckpoints)]
        if orders:
            order = orders[pick % len(orders)]
            left = dict.fromkeys(order.paths, 7) if order.globs and pick % 3 else {}
            gone = [uuid for uuid in order.paths if uuid not in left]
            self.tell(
                CheckpointsDeleted(experiment_id=order.experiment_id, uuids=gone, left_bytes=left)
            )

    @rule(pick=st.integers(0, 9))
    def register_version(self, pick: int) -> None:
        uuids = sorted(self.machine.state.checkpoints)
        if uuids:
            self.tell(CreateModel(name="model"))
            self.tell(RegisterVersion(model="model", uuid=uuids[pick % len(uuids)]))

    @rule(number=st.integers(1, 4))
    def release(self, number: int) -> None:
        self.tell(DeleteVersion(model="model", number=number))

    @rule(data=st.data(), action=st.sampled_from(["cancel_retries", "exclude_node"]))
    def log_matches(self, data: st.DataObject, action: Any) -> None:
        self.tell(
            LogMatched(
                allocation_id=self.some_run(data),
                rank=0,
                pattern="CUDA",
                action=action,
                line="CUDA out of memory",
            )
        )

    @rule(slots=st.integers(1, 4))
    def submit_what_is_wrong(self, slots: int) -> None:
        event = submitted(slots=slots)
        del event.config["searcher"]
        self.tell(event)

    @rule(by_s=st.sampled_from([-7200.0, 3.0, 7200.0]))
    def set_clock(self, by_s: float) -> None:
        for experiment in self.machine.state.experiments.values():
            if not experiment.state.is_terminal:  # the times of its ended trials move with it
                for trial_id in experiment.trial_ids:
                    self.ended.pop(("Trial", trial_id), None)
        self.tell(ClockStepped(by_s=by_s))

    @rule(data=st.data(), experiment_id=st.integers(1, 4), is_fatal=st.sampled_from([0, 0, 1]))
    def set_aside(self, data: st.DataObject, experiment_id: int, is_fatal: int) -> None:
        experiment = self.machine.state.experiments.get(experiment_id)
        if experiment is None or not experiment.state.is_terminal:
            gone = data.draw(st.sampled_from(["", self.some_run(data)]))
            self.tell(
                ContentSetAside(
                    experiment_id=experiment_id, what="x", is_fatal=bool(is_fatal), gone=gone
                )
            )

    @rule(names=st.lists(st.sampled_from(["ray", "night"]), unique=True))
    def change_clusters(self, names: list[str]) -> None:
        self.tell(ClustersChanged(names=names))

    @rule(trial_id=st.integers(1, 8), ranks=st.none() | st.sampled_from([[0], [0, 1]]))
    def order(self, trial_id: int, ranks: list[int] | None) -> None:
        if ranks is None:
            self.tell(ChangeTrial(trial_id=trial_id, lr_factor=2.0))
        else:
            self.tell(ProfileTrial(trial_id=trial_id, ranks=ranks))

    @rule(data=st.data(), steps=STEPS, error=st.sampled_from(["", "no"]))
    def answer_orders(self, data: st.DataObject, steps: int, error: str) -> None:
        run_id = self.some_run(data)
        found = self.machine.state.find_allocation(run_id)
        trials = [found[0]] if found else []
        ids = [order.id for trial in trials for order in trial.changes]
        ids += [order.id for trial in trials for order in trial.profiles]
        for id in ids:
            at = self.now
            for record in (
                ChangeMade(at=at, order_id=id, steps_completed=steps, error=error),
                TraceSaved(at=at, order_id=id, first=0, steps=steps, error=error),
            ):
                self.tell(RecordArrived(allocation_id=run_id, rank=0, record=record))

    @rule(trial_id=st.integers(1, 8))
    def kill_trial(self, trial_id: int) -> None:
        self.tell(KillTrial(trial_id=trial_id))

    @rule(
        experiment_id=st.integers(1, 4),
        max_trials=st.none() | st.integers(0, 12),
        max_length=st.none() | st.integers(1, 64),
        max_concurrent=st.none() | st.integers(0, 4),
    )
    def change(
        self,
        experiment_id: int,
        max_trials: int | None,
        max_length: int | None,
        max_concurrent: int | None,
    ) -> None:
        self.tell(
            ChangeSearch(
                experiment_id=experiment_id,
                max_trials=max_trials,
                max_length=None if max_length is None else Length("batches", max_length),
                max_concurrent_trials=max_concurrent,
            )
        )


class LaterLife(RandomLife):
    """As RandomLife, but one experiment is over and another one runs, both with checkpoints.

    Histories of this few steps from an empty machine hardly ever delete files.
    """

    @initialize()
    def begin(self) -> None:
        of_both = [(10, "a", "1.1.1"), (20, "b", "1.1.1"), (10, "c", "2.2.1"), (20, "d", "2.2.1")]
        for event in (
            registered(4),
            submitted(),
            *running(),
            submitted("other"),
            *running("2.2.1"),
            *(saved(*each) for each in of_both),
            *completed(),
            exited(),
        ):
            self.tell(event)


class ElasticLife(Life):
    """Elastic trials on slots of two computers, whose ranks die and save the last step."""

    @initialize(least=st.integers(1, 3), name=st.sampled_from(["single", "random"]))
    def begin(self, least: int, name: str) -> None:
        search: dict[str, Any] = {"name": name, "metric": "error", **LENGTH}
        if name == "random":
            search |= {"max_trials": 2, "max_concurrent_trials": 2}
        for agent_id in ("a", "b"):
            self.tell(registered(2, agent_id=agent_id, port=PORTS[agent_id]))
        self.tell(
            submitted(
                searcher=search,
                hyperparameters={"global_batch_size": 12},
                resources={"slots_per_trial": {"min": least, "max": 6}},
            )
        )


RandomLife.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestRandomLife = RandomLife.TestCase
LaterLife.TestCase.settings = settings(max_examples=15, stateful_step_count=40)
TestLaterLife = LaterLife.TestCase
ElasticLife.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestElasticLife = ElasticLife.TestCase
