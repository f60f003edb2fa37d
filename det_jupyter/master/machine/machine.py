"""The master's mind: events in, commands out, nothing else.

    Machine.handle(event, now) -> commands

is the only way its state changes. It does no I/O, reads no clock, and draws only random numbers
that derive from an experiment's seed: the same events give the same state and commands, always.
That is what makes a restart safe: snapshot, then the later events again.

    user     Submitted, Pause-, Activate-, Cancel-, KillRequested ──► user_events   ─┐
             ResourcesChange-, MoveRequested, SlotsSwitched, …    ──► pool_events   ─┤
             Archive-, Delete-, ContinueRequested, RetentionSet   ──► keeping_events ┤
             SearchChangeRequested, KillTrialRequested            ──► search_events ─┤
    sampler  HparamsSampled, TrialJudged                          ──► search_events ─┼─► placing
    work     NewsSetAside                                        ──► faults        ─┤
    agent    AgentRegistered, AgentAway, AgentLost                ──► agent_events  ─┤     │
    clock    ClockStepped                                         ──► clock_events  ─┤     │
    rank     GangStarted, GangExited, RecordArrived,              ──► run_events    ─┘     │
             ValidationReported                                                            ▼
                                  StartGang, ExtendGang, SignalGang, KillGang, CloseRun (agents)
                                  TruncateMetrics (store)        ConsultSampler (sampling)

Rules
 1. A handler checks first and changes after: an event that is refused has changed nothing. One
    that fails half way spoils the machine, which is then made anew (giving_up.py, restoring.py).
 2. The tables of lifecycle.py say which state may follow which; outcome.py says what the end of a
    gang means; searching.py when trials are made and experiments end.
 3. Every command is safe to repeat. When an agent registers, whatever it may have missed is
    commanded again.
 4. A trial has one allocation at a time. News of another one is old news and changes nothing.
 5. After each event, nobody waits who may start (scheduling.py); why.py can say of everyone who
    waits why.
 6. What an event costs does not grow with the number of trials: who waits and runs is in the live
    pools (pools.py), who lives in the indexes, and searches stay alive (searches.py).

Knows nothing of HTTP, SQLite or processes. The idea is distributed's scheduler state machine; what
that spreads over transition methods is here in tables and in handlers by who speaks.
"""

from __future__ import annotations

from typing import assert_never

from det_jupyter.errors import DetError
from det_jupyter.master.machine.core import events
from det_jupyter.master.machine.core.commands import Command, ToAgent, TruncateMetrics
from det_jupyter.master.machine.core.events import Event
from det_jupyter.master.machine.core.indexes import Indexes
from det_jupyter.master.machine.core.pools import Pools
from det_jupyter.master.machine.core.state import MachineState
from det_jupyter.master.machine.core.turn import Changes, HandlerFailed, Searches, Turn
from det_jupyter.master.machine.invariants import check
from det_jupyter.master.machine.on.agents import on_agent_away, on_agent_lost, on_agent_registered
from det_jupyter.master.machine.on.clock import on_clock_stepped
from det_jupyter.master.machine.on.ended import (
    on_archive_requested,
    on_checkpoints_deleted,
    on_continue_requested,
    on_delete_requested,
    on_experiment_deleted,
    on_log_matched,
    on_retention_set,
)
from det_jupyter.master.machine.on.pools import (
    on_devices_reported,
    on_pools_set,
    on_slots_switched,
)
from det_jupyter.master.machine.on.queue import (
    on_move_requested,
    on_queue_changes_requested,
    on_resources_change_requested,
)
from det_jupyter.master.machine.on.runs import (
    on_gang_exited,
    on_gang_started,
    on_record_arrived,
    on_validation_reported,
)
from det_jupyter.master.machine.on.searches import (
    on_hparams_sampled,
    on_kill_trial_requested,
    on_search_change_requested,
    on_trial_judged,
)
from det_jupyter.master.machine.on.users import (
    on_activate_requested,
    on_end_requested,
    on_pause_requested,
    on_submitted,
)
from det_jupyter.master.machine.rules.giving_up import on_news_set_aside
from det_jupyter.master.machine.rules.scheduling import place_waiting
from det_jupyter.master.machine.rules.searching import ask
from det_jupyter.wire import GangExited, GangStarted, State
from det_jupyter.words import error_line


class Machine:
    """See the module's docstring.

    Args:
        state: What an earlier machine knew; None: nothing yet.
    """

    def __init__(self, state: MachineState | None = None) -> None:
        self.state = state or MachineState()
        self.indexes = Indexes(self.state)
        self.pools = Pools(self.state)
        self.searches = Searches()
        self._changes = Changes()
        self._failures: list[Exception] = []

    def handle(self, event: Event, now: float) -> list[Command]:
        """Bring the state forward by one event and return what has to be done.

        Raises:
            ConfigError: An experiment that can never run; nothing has changed.
            NotFound: The event is about an experiment that does not exist; nothing has changed.
            Conflict: The event does not fit the state; nothing has changed.
            HandlerFailed: Anything else. The state may be half changed: `take_over` another one.
        """
        self.state.seq += 1
        turn = Turn(self.state, self.indexes, self.pools, self.searches, now)
        self._changes, self._failures = turn.changes, turn.failures
        try:
            _dispatch(turn, event)
            place_waiting(turn)
        except HandlerFailed:
            raise
        except Exception as error:
            if isinstance(error, DetError) and not turn.has_changed:
                self.state.seq -= 1
                raise
            raise HandlerFailed(error_line(error)) from error
        return turn.commands

    def take_over(self, other: Machine) -> None:
        """Know what another machine knows, which is not to be used any more, and nothing else."""
        self.state, self.indexes = other.state, other.indexes
        self.pools, self.searches = other.pools, other.searches
        self._changes, self._failures = Changes(), []

    def changes(self) -> Changes:
        """Return what the last event touched."""
        return self._changes

    def failures(self) -> list[Exception]:
        """Return what passes of the scheduler raised in the last event; see scheduling.py."""
        return self._failures

    def check(self) -> None:
        """Assert every invariant of the state."""
        check(self.state, self.indexes, self.pools)

    def dump(self) -> str:
        """Return the whole state as JSON, from which another machine goes on as this one would."""
        self.searches.write_into(self.state)
        try:
            return self.state.model_dump_json()
        finally:
            self.searches.take_back(self.state)

    def pending(self) -> list[Command]:
        """Return the questions to samplers and pruners that were not answered yet."""
        turn = Turn(self.state, self.indexes, self.pools, self.searches, now=0.0)
        for experiment in self.state.experiments.values():
            if not experiment.state.is_terminal:
                ask(turn, experiment, self.searches.of(experiment).pending())
        return turn.commands

    def story(self, trial_id: int) -> list[str]:
        """Return the last events of a trial, in words."""
        return list(self.state.trials[trial_id].story)


def _dispatch(turn: Turn, event: Event) -> None:
    match event:
        case events.ExperimentSubmitted():
            on_submitted(turn, event)
        case events.PauseRequested():
            on_pause_requested(turn, event.experiment_id)
        case events.ActivateRequested():
            on_activate_requested(turn, event.experiment_id)
        case events.CancelRequested():
            on_end_requested(turn, event.experiment_id, State.STOPPING_CANCELED)
        case events.KillRequested():
            on_end_requested(turn, event.experiment_id, State.STOPPING_KILLED)
        case events.KillTrialRequested():
            on_kill_trial_requested(turn, event.trial_id)
        case events.SearchChangeRequested():
            on_search_change_requested(turn, event)
        case events.ResourcesChangeRequested():
            on_resources_change_requested(turn, event)
        case events.MoveRequested():
            on_move_requested(turn, event)
        case events.QueueChangesRequested():
            on_queue_changes_requested(turn, event)
        case events.SlotsSwitched():
            on_slots_switched(turn, event)
        case events.PoolsSet():
            on_pools_set(turn, event)
        case events.DevicesReported():
            on_devices_reported(turn, event)
        case events.ArchiveRequested():
            on_archive_requested(turn, event)
        case events.DeleteRequested():
            on_delete_requested(turn, event)
        case events.ExperimentDeleted():
            on_experiment_deleted(turn, event)
        case events.ContinueRequested():
            on_continue_requested(turn, event)
        case events.RetentionSet():
            on_retention_set(turn, event)
        case events.CheckpointsDeleted():
            on_checkpoints_deleted(turn, event)
        case events.LogMatched():
            on_log_matched(turn, event)
        case events.HparamsSampled():
            on_hparams_sampled(turn, event)
        case events.TrialJudged():
            on_trial_judged(turn, event)
        case events.NewsSetAside():
            on_news_set_aside(turn, event)
        case events.AgentRegistered():
            on_agent_registered(turn, event)
        case events.AgentAway():
            on_agent_away(turn, event)
        case events.AgentLost():
            on_agent_lost(turn, event.agent_id)
        case events.ClockStepped():
            on_clock_stepped(turn, event)
        case GangStarted():
            on_gang_started(turn, event)
        case GangExited():
            on_gang_exited(turn, event)
        case events.ValidationReported():
            on_validation_reported(turn, event)
        case events.RecordArrived():
            on_record_arrived(turn, event)
        case _:
            assert_never(event)


__all__ = ["Changes", "Command", "Machine", "ToAgent", "TruncateMetrics"]
