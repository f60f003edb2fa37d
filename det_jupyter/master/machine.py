"""The master's mind: events in, commands out, nothing else.

    Machine.handle(event, now) -> commands

is the only way its state changes. It does no I/O, reads no clock, and draws only random numbers
that derive from an experiment's seed: the same events give the same state and commands, always.
That is what makes a restart safe: snapshot, then the later events again.

Rules of this file
 1. A handler checks first and changes after: an event that is refused has changed nothing.
 2. The tables of lifecycle.py say which state may follow which; verdict.py says what the end of a
    gang means. Here is only what follows from it.
 3. Every command is safe to repeat. When an agent registers, whatever it may have missed is
    commanded again.
 4. A trial has one allocation at a time. News of another one is old news and changes nothing.

    user        ──Submitted/Pause/Activate/Cancel/Kill──►┐             ┌─► StartGang, SignalGang,
    agent       ──Registered/Lost/GangStarted/GangExited─►├─ handle ───┤   KillGang, CloseRun
    rank        ──RecordArrived, ValidationReported──────►┘            └─► TruncateMetrics (store)

Knows nothing of HTTP, SQLite or processes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from det_jupyter.config import parse_config, sample_hparams, trial_seed
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master import events
from det_jupyter.master.events import Event
from det_jupyter.master.invariants import check
from det_jupyter.master.lifecycle import ENDS_AS, is_stopping, move, move_allocation
from det_jupyter.master.metrics import best_of
from det_jupyter.master.plans import make_plan
from det_jupyter.master.queue import agents_as_they_are, find_request, to_request
from det_jupyter.master.state import Agent, Allocation, Experiment, MachineState, Trial
from det_jupyter.master.verdict import Verdict, find_failure, judge
from det_jupyter.records import CheckpointSaved, FirstStep, RankFailure, RankStarted, RunEnded
from det_jupyter.scheduler import Placement, explain, find_impossibility, schedule
from det_jupyter.searcher import (
    Action,
    Create,
    ExitReason,
    Shutdown,
    Stop,
    make_search_method,
)
from det_jupyter.wire import (
    AgentCommand,
    AllocationState,
    CheckpointRef,
    CheckpointView,
    CloseRun,
    GangExited,
    GangStarted,
    KillGang,
    RankView,
    SignalGang,
    StartGang,
    State,
)

_STORY_LENGTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ToAgent:
    """A command for an agent; `cause` is the number of the event that led to it."""

    agent_id: str
    command: AgentCommand
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateMetrics:
    """What the trial reported after `steps_completed` is void: it starts again from there."""

    experiment_id: int
    trial_id: int
    steps_completed: int
    cause: int


Command = ToAgent | TruncateMetrics


@dataclass(frozen=True, slots=True)
class Changes:
    """What the last event touched."""

    experiments: set[int] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    checkpoints: set[str] = field(default_factory=set)


class Machine:
    """See the module's docstring.

    Args:
        state: What an earlier machine knew; None: nothing yet.
    """

    def __init__(self, state: MachineState | None = None) -> None:
        self.state = state or MachineState()
        self._now = 0.0
        self._changes = Changes()
        self._commands: list[Command] = []

    def handle(self, event: Event, now: float) -> list[Command]:
        """Bring the state forward by one event and return what has to be done.

        Raises:
            ConfigError: An experiment that can never run.
            NotFound: The event is about an experiment that does not exist.
            Conflict: The event does not fit the state.
        """
        self._now = now
        self._changes = Changes()
        self._commands = []
        self.state.seq += 1
        try:
            self._dispatch(event)
        except (ConfigError, NotFound, Conflict):
            self.state.seq -= 1
            raise
        self._place_waiting()
        self._explain_waiting()
        return self._commands

    def changes(self) -> Changes:
        """Return what the last event touched."""
        return self._changes

    def check(self) -> None:
        """Assert every invariant of the state."""
        check(self.state)

    def story(self, trial_id: int) -> list[str]:
        """Return the last events of a trial, in words."""
        return list(self.state.trials[trial_id].story)

    def best_metric(self, experiment_id: int) -> float | None:
        """Return the best value of the searcher's metric among the experiment's trials."""
        experiment = self.state.experiments[experiment_id]
        return best_of((t.best_metric for t in self._trials_of(experiment)), experiment.config)

    def _dispatch(self, event: Event) -> None:
        match event:
            case events.ExperimentSubmitted():
                self._on_submitted(event)
            case events.PauseRequested():
                self._on_pause_requested(self._experiment(event.experiment_id))
            case events.ActivateRequested():
                self._on_activate_requested(self._experiment(event.experiment_id))
            case events.CancelRequested():
                self._on_end_requested(
                    self._experiment(event.experiment_id), State.STOPPING_CANCELED
                )
            case events.KillRequested():
                self._on_end_requested(
                    self._experiment(event.experiment_id), State.STOPPING_KILLED
                )
            case events.AgentRegistered():
                self._on_agent_registered(event)
            case events.AgentLost():
                self._on_agent_lost(event.agent_id)
            case GangStarted():
                self._on_gang_started(event)
            case GangExited():
                self._on_gang_exited(event)
            case events.ValidationReported():
                self._on_validation_reported(event)
            case events.RecordArrived():
                self._on_record_arrived(event)

    def _on_submitted(self, event: events.ExperimentSubmitted) -> None:
        config = parse_config(event.config)
        agents = agents_as_they_are(self.state)
        if problem := find_impossibility(config.resources.slots_per_trial, agents):
            raise ConfigError([problem])
        self.state.last_experiment_id += 1
        experiment = Experiment(
            id=self.state.last_experiment_id,
            config=event.config,
            capsule=event.capsule,
            python=event.python,
            cwd=event.cwd,
            notebook=event.notebook,
            created_at=self._now,
        )
        self.state.experiments[experiment.id] = experiment
        self._touch(experiment)
        self._ask_searcher(experiment, None, None)

    def _on_pause_requested(self, experiment: Experiment) -> None:
        if experiment.state is State.PAUSED:
            return
        self._must_be(experiment, State.ACTIVE, "paused")
        move(experiment, State.PAUSED)
        self._touch(experiment)
        for trial in self._living_trials(experiment):
            move(trial, State.PAUSED)
            self._touch(trial, "asked to pause")
            self._make_leave(trial, at_once=False)

    def _on_activate_requested(self, experiment: Experiment) -> None:
        if experiment.state is State.ACTIVE:
            return
        self._must_be(experiment, State.PAUSED, "activated")
        move(experiment, State.ACTIVE)
        self._touch(experiment)
        for trial in self._living_trials(experiment):
            move(trial, State.ACTIVE)
            self._touch(trial, "activated")
            if not _holds_slots(trial):  # else it queues again when its ranks have left
                self._queue(trial)

    def _on_end_requested(self, experiment: Experiment, stopping: State) -> None:
        if experiment.state.is_terminal or experiment.state in (stopping, State.STOPPING_KILLED):
            return
        if experiment.state not in (State.ACTIVE, State.PAUSED, State.STOPPING_CANCELED):
            return  # it is ending already
        move(experiment, stopping)
        self._touch(experiment)
        for trial in self._living_trials(experiment):
            move(trial, stopping)
            self._touch(trial, str(stopping))
            self._make_leave(trial, at_once=stopping is State.STOPPING_KILLED)
            if not _holds_slots(trial):
                self._end_trial(trial)
        self._conclude_if_drained(experiment)

    def _experiment(self, experiment_id: int) -> Experiment:
        experiment = self.state.experiments.get(experiment_id)
        if experiment is None:
            raise NotFound(f"there is no experiment {experiment_id}; `list` shows those that are")
        return experiment

    def _must_be(self, experiment: Experiment, state: State, verb: str) -> None:
        if experiment.state is not state:
            raise Conflict(
                f"experiment {experiment.id} is {experiment.state} and cannot be {verb}; "
                f"only one that is {state} can"
            )

    def _make_leave(self, trial: Trial, *, at_once: bool) -> None:
        """Take a waiting trial out of the queue, or tell its ranks to go."""
        allocation = trial.allocation
        if allocation is None or allocation.state is AllocationState.ENDED:
            return
        if allocation.state is AllocationState.QUEUED:
            move_allocation(allocation, AllocationState.ENDED)
            return
        if allocation.state is not AllocationState.STOPPING:
            move_allocation(allocation, AllocationState.STOPPING)
        self._tell_to_leave(allocation, self._experiment(trial.experiment_id), at_once=at_once)

    def _tell_to_leave(
        self, allocation: Allocation, experiment: Experiment, *, at_once: bool
    ) -> None:
        if at_once:
            self._tell(allocation, KillGang(allocation_id=allocation.id))
            return
        timeout_s = float(experiment.config["preemption_timeout"])
        self._tell(
            allocation,
            SignalGang(allocation_id=allocation.id, signal="preempt", timeout_s=timeout_s),
        )

    def _ask_searcher(
        self, experiment: Experiment, trial: Trial | None, reason: ExitReason | None
    ) -> None:
        """Tell the search method that a trial has exited (or to start), and do what it says."""
        config = parse_config(experiment.config)
        method = make_search_method(config.searcher, experiment.searcher)
        if trial is None or reason is None:
            actions = method.start()
        else:
            actions = method.on_trial_exited(experiment.trial_ids.index(trial.id), reason)
        experiment.searcher = method.snapshot()
        self._carry_out(experiment, actions)

    def _carry_out(self, experiment: Experiment, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Create():
                    self._create_trial(experiment)
                case Stop(index):
                    trial = self.state.trials[experiment.trial_ids[index]]
                    move(trial, State.STOPPING_COMPLETED)
                    self._make_leave(trial, at_once=False)
                case Shutdown():
                    if not is_stopping(experiment.state):
                        move(experiment, State.STOPPING_COMPLETED)
                        self._touch(experiment)
                    self._conclude_if_drained(experiment)

    def _create_trial(self, experiment: Experiment) -> None:
        config = parse_config(experiment.config)
        seed = trial_seed(config.reproducibility.experiment_seed, len(experiment.trial_ids))
        self.state.last_trial_id += 1
        trial = Trial(
            id=self.state.last_trial_id,
            experiment_id=experiment.id,
            hparams=sample_hparams(config.hyperparameters, random.Random(seed)),
            seed=seed,
            created_at=self._now,
        )
        self.state.trials[trial.id] = trial
        experiment.trial_ids.append(trial.id)
        self._queue(trial)

    def _queue(self, trial: Trial) -> None:
        trial.runs += 1
        trial.allocation = Allocation(
            id=f"{trial.experiment_id}.{trial.id}.{trial.runs}",
            run=trial.runs,
            queued_at=self._now,
        )
        self._touch(trial, f"run {trial.runs} queued")

    def _place_waiting(self) -> None:
        waiting = {a.id: t for t in self.state.trials.values() if (a := find_request(t))}
        if not waiting:
            return
        requests = [
            to_request(trial, self.state.experiments[trial.experiment_id])
            for trial in waiting.values()
        ]
        for placement in schedule(agents_as_they_are(self.state), requests):
            self._start(waiting[placement.request_id], placement)

    def _start(self, trial: Trial, placement: Placement) -> None:
        allocation = trial.allocation
        assert allocation is not None
        slots = {slot.id: slot for slot in self.state.agents[placement.agent_id].slots}
        allocation.agent_id = placement.agent_id
        allocation.slots = [slots[slot_id] for slot_id in placement.slot_ids]
        allocation.starts_from = trial.latest_checkpoint
        allocation.started_at = self._now
        move_allocation(allocation, AllocationState.STARTING)
        self._touch(trial, f"run {allocation.run} starts on {placement.agent_id}")
        if trial.runs > 1:
            self._forget_metrics_after(trial, allocation.starts_from)
        self._command_start(trial, allocation)

    def _command_start(self, trial: Trial, allocation: Allocation) -> None:
        experiment = self.state.experiments[trial.experiment_id]
        plan = make_plan(experiment, trial, allocation, self.best_metric(experiment.id))
        self._tell(allocation, StartGang(plan=plan))

    def _forget_metrics_after(self, trial: Trial, checkpoint: CheckpointRef | None) -> None:
        steps = checkpoint.steps_completed if checkpoint is not None else 0
        kept = {step: value for step, value in trial.metrics_by_step.items() if step <= steps}
        self._set_metrics(trial, kept)
        self._commands.append(
            TruncateMetrics(
                experiment_id=trial.experiment_id,
                trial_id=trial.id,
                steps_completed=steps,
                cause=self.state.seq,
            )
        )

    def _set_metrics(self, trial: Trial, metrics: dict[int, float]) -> None:
        config = self.state.experiments[trial.experiment_id].config
        trial.metrics_by_step = metrics
        trial.best_metric = best_of(metrics.values(), config)
        trial.latest_metric = metrics[max(metrics)] if metrics else None

    def _explain_waiting(self) -> None:
        """Say anew why each waiting trial waits: the reason may lie in others."""
        agents = agents_as_they_are(self.state)
        for trial in self.state.trials.values():
            reason = None
            if find_request(trial) is not None:
                slots = self.state.experiments[trial.experiment_id].slots_per_trial
                reason = explain(slots, agents)
            if reason != trial.waiting_for:
                trial.waiting_for = reason
                self._touch(trial)

    def _on_agent_registered(self, event: events.AgentRegistered) -> None:
        self.state.agents[event.agent_id] = Agent(
            id=event.agent_id,
            session=event.session,
            hostname=event.hostname,
            pid=event.pid,
            slots=event.slots,
        )
        known = {run.allocation_id: run.alive for run in event.runs}
        present = {slot.id for slot in event.slots}
        for trial, allocation in self._held_by(event.agent_id):
            if allocation.id not in known:
                if allocation.ranks or not present.issuperset(s.id for s in allocation.slots):
                    self._on_gang_exited(_lost(allocation, self._now))
                elif allocation.state is AllocationState.STARTING:
                    self._command_start(trial, allocation)
                else:  # told to leave before it was started: it never will be
                    self._on_gang_exited(_lost(allocation, self._now))
            elif known[allocation.id] and allocation.state is AllocationState.STOPPING:
                experiment = self.state.experiments[trial.experiment_id]
                at_once = experiment.state is State.STOPPING_KILLED
                self._tell_to_leave(allocation, experiment, at_once=at_once)
        for allocation_id, alive in known.items():
            if alive and self.state.find_allocation(allocation_id) is None:
                command = KillGang(allocation_id=allocation_id)
                self._commands.append(
                    ToAgent(agent_id=event.agent_id, command=command, cause=self.state.seq)
                )

    def _on_agent_lost(self, agent_id: str) -> None:
        self.state.agents.pop(agent_id, None)
        for _, allocation in self._held_by(agent_id):
            self._on_gang_exited(_lost(allocation, self._now))

    def _held_by(self, agent_id: str) -> list[tuple[Trial, Allocation]]:
        return [
            (trial, trial.allocation)
            for trial in self.state.trials.values()
            if trial.allocation is not None
            and trial.allocation.holds_slots
            and trial.allocation.agent_id == agent_id
        ]

    def _on_gang_started(self, event: GangStarted) -> None:
        found = self.state.find_allocation(event.allocation_id)
        if found is None:
            return
        trial, allocation = found
        allocation.launch_note = event.note
        allocation.ranks = [
            RankView(
                rank=process.rank,
                pid=process.pid,
                slot=allocation.slots[process.rank],
                connection_file=process.connection_file,
                output_file=process.output_file,
            )
            for process in event.ranks
        ]
        self._note_ranks_up(allocation)
        self._touch(trial, f"run {allocation.run}: ranks started")

    def _on_gang_exited(self, event: GangExited) -> None:
        found = self.state.find_allocation(event.allocation_id)
        if found is None:
            return
        trial, allocation = found
        verdict = judge(trial, allocation, event)
        move_allocation(allocation, AllocationState.ENDED)
        self._touch(trial, f"run {allocation.run} ended: {verdict}")
        self._tell(allocation, CloseRun(allocation_id=allocation.id))
        match verdict:
            case Verdict.ENDED_AS_ASKED:
                self._end_trial(trial)
                self._conclude_if_drained(self.state.experiments[trial.experiment_id])
            case Verdict.COMPLETED:
                self._finish(trial, State.STOPPING_COMPLETED, ExitReason.COMPLETED)
            case Verdict.INVALID:
                trial.message = allocation.run_end.message if allocation.run_end else ""
                self._finish(trial, State.STOPPING_COMPLETED, ExitReason.INVALID_HP)
            case Verdict.PREEMPTED | Verdict.LOST:
                if trial.state is State.ACTIVE:
                    self._queue(trial)
            case Verdict.FAILED:
                self._on_failed(trial, allocation, event)

    def _on_failed(self, trial: Trial, allocation: Allocation, event: GangExited) -> None:
        trial.failure, is_final = find_failure(allocation, event)
        config = self.state.experiments[trial.experiment_id].config
        if is_final or trial.restarts >= config["max_restarts"]:
            tried = f" (after {trial.restarts} restarts)" if trial.restarts else ""
            trial.message = trial.failure.error + tried
            self._finish(trial, State.STOPPING_ERROR, ExitReason.ERRORED)
            return
        trial.restarts += 1
        if trial.state is State.ACTIVE:
            self._queue(trial)

    def _on_validation_reported(self, event: events.ValidationReported) -> None:
        found = self.state.find_allocation(event.allocation_id)
        if found is None or event.metric is None:
            return
        trial, _ = found
        self._set_metrics(trial, trial.metrics_by_step | {event.steps_completed: event.metric})
        for checkpoint in self.state.checkpoints.values():
            if (checkpoint.trial_id, checkpoint.steps_completed) == (
                trial.id,
                event.steps_completed,
            ):
                checkpoint.searcher_metric = event.metric
                self._changes.checkpoints.add(checkpoint.uuid)
        self._touch(trial)
        self._judge_by_searcher(trial, event)

    def _judge_by_searcher(self, trial: Trial, event: events.ValidationReported) -> None:
        experiment = self.state.experiments[trial.experiment_id]
        if trial.state is not State.ACTIVE or event.metric is None:
            return
        config = parse_config(experiment.config)
        method = make_search_method(config.searcher, experiment.searcher)
        index = experiment.trial_ids.index(trial.id)
        actions = method.on_validation(index, event.steps_completed, event.metric)
        experiment.searcher = method.snapshot()
        self._carry_out(experiment, actions)

    def _on_record_arrived(self, event: events.RecordArrived) -> None:
        found = self.state.find_allocation(event.allocation_id)
        if found is None:
            return
        trial, allocation = found
        record = event.record
        match record:
            case RankStarted():
                allocation.ranks_up[event.rank] = record
                self._note_ranks_up(allocation)
            case FirstStep():
                allocation.first_step_at = allocation.first_step_at or record.at
            case CheckpointSaved():
                self._note_checkpoint(trial, record)
            case RunEnded():
                allocation.run_end = allocation.run_end or record
            case RankFailure():
                allocation.failures.append(record)
        self._touch(trial)

    def _note_ranks_up(self, allocation: Allocation) -> None:
        for rank in allocation.ranks:
            if up := allocation.ranks_up.get(rank.rank):
                rank.backend, rank.device = up.backend, up.device
        all_up = len(allocation.ranks_up) == len(allocation.slots)
        if all_up and allocation.ranks and allocation.state is AllocationState.STARTING:
            move_allocation(allocation, AllocationState.RUNNING)

    def _note_checkpoint(self, trial: Trial, record: CheckpointSaved) -> None:
        self.state.checkpoints[record.uuid] = CheckpointView(
            uuid=record.uuid,
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            steps_completed=record.steps_completed,
            path=record.path,
            size_bytes=record.size_bytes,
            created_at=record.at,
            searcher_metric=trial.metrics_by_step.get(record.steps_completed),
        )
        self._changes.checkpoints.add(record.uuid)
        trial.latest_checkpoint = CheckpointRef(
            uuid=record.uuid, path=record.path, steps_completed=record.steps_completed
        )

    def _finish(self, trial: Trial, stopping: State, reason: ExitReason) -> None:
        """End a trial that ended by itself, and tell the search method."""
        move(trial, stopping)
        self._end_trial(trial)
        self._ask_searcher(self.state.experiments[trial.experiment_id], trial, reason)

    def _end_trial(self, trial: Trial) -> None:
        move(trial, ENDS_AS[trial.state])
        trial.ended_at = self._now
        self._touch(trial, str(trial.state))

    def _conclude_if_drained(self, experiment: Experiment) -> None:
        trials = self._trials_of(experiment)
        if not is_stopping(experiment.state) or not all(t.state.is_terminal for t in trials):
            return
        failed = [t for t in trials if t.state is State.ERROR]
        if failed and len(failed) == len(trials):
            experiment.message = f"trial {failed[0].id}: {failed[0].message}"
            if experiment.state is State.STOPPING_COMPLETED:
                move(experiment, State.STOPPING_ERROR)
        else:
            experiment.message = next((t.message for t in trials if t.message), "")
        move(experiment, ENDS_AS[experiment.state])
        experiment.ended_at = self._now
        self._touch(experiment)

    def _trials_of(self, experiment: Experiment) -> list[Trial]:
        return [self.state.trials[trial_id] for trial_id in experiment.trial_ids]

    def _living_trials(self, experiment: Experiment) -> list[Trial]:
        return [t for t in self._trials_of(experiment) if not t.state.is_terminal]

    def _tell(self, allocation: Allocation, command: AgentCommand) -> None:
        assert allocation.agent_id is not None
        self._commands.append(
            ToAgent(agent_id=allocation.agent_id, command=command, cause=self.state.seq)
        )

    def _touch(self, part: Experiment | Trial, what: str = "") -> None:
        if isinstance(part, Experiment):
            self._changes.experiments.add(part.id)
            return
        self._changes.trials.add(part.id)
        if what:
            part.story = [*part.story, f"#{self.state.seq} {what}"][-_STORY_LENGTH:]


def _holds_slots(trial: Trial) -> bool:
    return trial.allocation is not None and trial.allocation.holds_slots


def _lost(allocation: Allocation, now: float) -> GangExited:
    codes: dict[int, int | None] = dict.fromkeys(range(len(allocation.slots)))
    return GangExited(allocation_id=allocation.id, at=now, exit_codes=codes, lost=True)
