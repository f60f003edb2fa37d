"""The machine under random events, legal and not: what must hold whatever happens.

After every event: the invariants; a refused event has changed nothing; what was terminal is as it
was; every command fits the state. At the end: restoring snapshots on the way and replaying
everything from the beginning come to the same state by the same commands.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.events import (
    ActivateRequested,
    AgentLost,
    CancelRequested,
    Event,
    KillRequested,
    KillTrialRequested,
    PauseRequested,
    SearchChangeRequested,
    parse_event,
)
from det_jupyter.master.machine import Command, Machine, ToAgent, TruncateMetrics
from det_jupyter.master.state import Experiment, MachineState, Trial
from det_jupyter.wire import (
    AllocationState,
    CloseRun,
    KillGang,
    SignalGang,
    StartGang,
)
from tests.unit.machine_world import (
    check_changes,
    ended,
    exited,
    failed,
    first_step,
    parts_of,
    reached,
    registered,
    saved,
    started,
    submitted,
    up,
    validated,
)

AGENTS = st.sampled_from(["a", "b"])
STEPS = st.integers(0, 50)
METRICS = st.sampled_from([None, 0.0, 0.5, -1.0, math.nan, math.inf])
REQUESTS = st.sampled_from([PauseRequested, ActivateRequested, CancelRequested, KillRequested])
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
        {"first_failed": 0, "codes": {0: 1}},
        {"first_failed": 0, "codes": {0: -9}},
        {"error": "could not be started"},
        {"error": "could not be started", "error_is_final": False},
    ]
)


class RandomLife(RuleBasedStateMachine):
    """A master's life: users, agents and ranks at random."""

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
        check_changes(self.machine, parts)
        self.commands += commands
        for command in commands:
            self.check_command(command)

    def check_command(self, command: Command) -> None:
        assert command.cause == self.machine.state.seq
        if isinstance(command, TruncateMetrics):
            assert command.trial_id in self.machine.state.trials
            return
        assert isinstance(command, ToAgent), "no searcher here has a sampler"
        match command.command:
            case StartGang(plan=plan):
                allocation = self.machine.state.trials[plan.trial_id].allocation
                assert allocation is not None
                assert (allocation.id, allocation.state) == (
                    plan.allocation_id, AllocationState.STARTING,
                )  # fmt: skip
                assert allocation.agent_id == command.agent_id
                assert allocation.slots == plan.slots
                offered = self.machine.state.agents[command.agent_id].slots
                assert all(slot in offered for slot in plan.slots)
            case SignalGang(allocation_id=allocation_id):
                found = self.machine.state.find_allocation(allocation_id)
                assert found is not None
                assert found[1].state is AllocationState.STOPPING
            case KillGang(allocation_id=allocation_id):
                found = self.machine.state.find_allocation(allocation_id)
                assert found is None or found[1].state is AllocationState.STOPPING
            case CloseRun(allocation_id=allocation_id):
                assert self.machine.state.find_allocation(allocation_id) is None

    def run_ids(self) -> list[str]:
        """Return all runs there ever were, and one there was not."""
        trials = self.machine.state.trials.values()
        known = [f"{t.experiment_id}.{t.id}.{run}" for t in trials for run in range(1, t.runs + 1)]
        return [*known, "77.77.1"]

    def slots_of(self, run_id: str) -> int:
        experiment = self.machine.state.experiments.get(int(run_id.split(".")[0]))
        return experiment.slots_per_trial if experiment is not None else 1

    def some_run(self, data: st.DataObject) -> str:
        """Return a run, most often the present one of a trial: that is where things happen."""
        trials = self.machine.state.trials.values()
        present = [t.allocation.id for t in trials if t.allocation and t.allocation.holds_slots]
        choices = st.sampled_from(self.run_ids())
        if present:
            choices = st.sampled_from(present) | st.sampled_from(present) | choices
        return data.draw(choices)

    @rule(
        slots=st.integers(1, 4),
        priority=st.sampled_from([1, 42]),
        max_restarts=st.integers(0, 2),
        smaller=st.booleans(),
        searcher=st.sampled_from(SEARCHERS),
    )
    def submit(
        self, slots: int, priority: int, max_restarts: int, smaller: bool, searcher: dict[str, Any]
    ) -> None:
        searcher = searcher | {"metric": "error", "smaller_is_better": smaller}
        self.tell(
            submitted(
                slots=slots,
                max_restarts=max_restarts,
                searcher=searcher,
                hyperparameters={"global_batch_size": 8, "lr": LR},
                resources={"priority": priority},
            )
        )

    @rule(slots=st.integers(1, 4))
    def submit_what_is_wrong(self, slots: int) -> None:
        event = submitted(slots=slots)
        del event.config["searcher"]
        self.tell(event)

    @rule(request_=REQUESTS, experiment_id=st.integers(1, 6))
    def ask(self, request_: type[PauseRequested], experiment_id: int) -> None:
        self.tell(request_(experiment_id=experiment_id))

    @rule(data=st.data(), agent_id=AGENTS, slots=st.integers(1, 4))
    def register(self, data: st.DataObject, agent_id: str, slots: int) -> None:
        # An agent cannot know a run that was never ordered, or that another agent has.
        not_here = {
            t.allocation.id
            for t in self.machine.state.trials.values()
            if t.allocation is not None and t.allocation.agent_id != agent_id
        }
        possible = [id for id in self.run_ids() if id not in not_here]
        runs = data.draw(st.dictionaries(st.sampled_from(possible), st.booleans(), max_size=4))
        self.tell(registered(slots, runs, agent_id=agent_id))

    @rule(agent_id=AGENTS)
    def lose(self, agent_id: str) -> None:
        self.tell(AgentLost(agent_id=agent_id))

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        self.tell(started(run_id, self.slots_of(run_id)))

    @rule(data=st.data())
    def come_up(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        for rank in range(data.draw(st.integers(1, self.slots_of(run_id)))):
            self.tell(up(rank, run_id))

    @rule(data=st.data(), steps=STEPS, metric=METRICS)
    def validate(self, data: st.DataObject, steps: int, metric: float | None) -> None:
        self.tell(validated(steps, metric, self.some_run(data)))

    @rule(data=st.data(), steps=STEPS)
    def save(self, data: st.DataObject, steps: int) -> None:
        self.tell(saved(steps, f"uuid{len(self.history)}", self.some_run(data)))

    @rule(data=st.data(), is_current=st.booleans())
    def reach(self, data: st.DataObject, is_current: bool) -> None:
        run_id = self.some_run(data)
        found = self.machine.state.find_allocation(run_id)
        target = found[0].target if found and is_current else {"batches": 4}
        self.tell(reached(target.get("batches", 1), run_id, target))

    @rule(data=st.data())
    def reach_and_complete(self, data: st.DataObject) -> None:
        run_id = self.some_run(data)
        if found := self.machine.state.find_allocation(run_id):
            steps = found[0].target["batches"]
            self.tell(validated(steps, data.draw(METRICS), run_id))
            self.tell(saved(steps, f"uuid{len(self.history)}", run_id))
            self.tell(reached(steps, run_id))
            self.tell(ended("completed", steps, allocation_id=run_id))

    @rule(trial_id=st.integers(1, 8))
    def kill_trial(self, trial_id: int) -> None:
        self.tell(KillTrialRequested(trial_id=trial_id))

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
            SearchChangeRequested(
                experiment_id=experiment_id,
                max_trials=max_trials,
                max_length=None if max_length is None else {"batches": max_length},
                max_concurrent_trials=max_concurrent,
            )
        )

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
        self.tell(exited(self.some_run(data), **facts))

    @rule()
    def restart_from_a_snapshot(self) -> None:
        text = self.machine.dump()
        self.machine = Machine(MachineState.model_validate_json(text))

    @invariant()
    def everything_holds(self) -> None:
        self.machine.check()

    @invariant()
    def what_is_over_stays_as_it_was(self) -> None:
        state = self.machine.state
        parts: list[Experiment | Trial] = [*state.experiments.values(), *state.trials.values()]
        for part in parts:
            key = (type(part).__name__, part.id)
            if part.state.is_terminal:
                text = part.model_dump_json()
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


RandomLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRandomLife = RandomLife.TestCase
