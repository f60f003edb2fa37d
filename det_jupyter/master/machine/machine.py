"""The pure machine at the centre of the master: events in, commands out.

    Machine.handle(event, now) -> commands

is the only way its state changes. It does no I/O, reads no clock, and draws only random numbers
that derive from an experiment's seed: the same events give the same state and commands, always.
That is what makes a restart safe: restore a snapshot, then handle the later events again.

Events come from users, samplers, agents, ranks and the clock; HANDLERS says what handles each.

    destination   commands
    agents        StartGang, ExtendGang, PassOrders, SignalGang, KillGang, CloseRun
    store         TruncateMetrics, DeleteCheckpoints, DeleteExperiment
    sampler       ConsultSampler

Rules
 1. A handler checks first and changes after: an event that is refused has changed nothing. One
    that fails half way spoils the machine, which is then made anew (giving_up.py, restoring.py).
 2. The tables of lifecycle.py say which state may follow which; outcome.py says what the end of a
    gang means; searching.py when trials are made and experiments end.
 3. Every command is safe to repeat. When an agent registers, whatever it may have missed is
    commanded again.
 4. A trial has one allocation at a time. News of another allocation changes nothing.
 5. After each event, no trial waits that may start (`_place_waiting`); wait_reasons.py says why
    of each that waits.
 6. What an event costs does not grow with the number of trials that are over: look-ups hold what
    waits, runs and is not over (queue.py, indexes.py), and searches stay in memory (turn.py).
    Where something changed that the scheduler decides by, it grows with what waits and runs.

Prior art: distributed's scheduler state machine; its transition methods are here tables, and
handlers by the source of the event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.contract.messages import GangExited, GangStarted, changes
from det_jupyter.contract.values.text import error_line, printable
from det_jupyter.errors import DetError
from det_jupyter.master.machine.handlers import (
    agents,
    ended_experiments,
    experiment_changes,
    queueing,
    runs,
    searches,
)
from det_jupyter.master.machine.model import events
from det_jupyter.master.machine.model.commands import Command, ToAgent, TruncateMetrics
from det_jupyter.master.machine.model.events import Event, NewsSetAside
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.queue import Queue
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.machine.model.turn import Changes, HandlerFailed, Searches, Turn
from det_jupyter.master.machine.rules.giving_up import on_news_set_aside
from det_jupyter.master.machine.rules.placing import carry_out
from det_jupyter.master.machine.rules.searching import ask
from det_jupyter.scheduler.decide import PassFailed, decide
from det_jupyter.scheduler.model import Decisions
from det_jupyter.scheduler.snapshot import Snapshot

_LONGEST_REASON = 300  # characters

HANDLERS: Mapping[type[Any], Callable[[Turn, Any], None]] = {
    # from users
    events.ExperimentSubmitted: experiment_changes.on_submitted,
    changes.Pause: experiment_changes.on_pause,
    changes.Activate: experiment_changes.on_activate,
    changes.Cancel: experiment_changes.on_end,
    changes.Kill: experiment_changes.on_end,
    changes.ChangeDetails: experiment_changes.on_change_details,
    changes.ChangeResources: queueing.on_change_resources,
    changes.MoveInQueue: queueing.on_move_in_queue,
    changes.ChangeQueue: queueing.on_change_queue,
    changes.SwitchSlots: queueing.on_switch_slots,
    changes.SetPools: queueing.on_set_pools,
    changes.Archive: ended_experiments.on_archive,
    changes.Unarchive: ended_experiments.on_archive,
    changes.Delete: ended_experiments.on_delete,
    events.ContinueRequested: ended_experiments.on_continue_requested,
    changes.SetRetention: ended_experiments.on_set_retention,
    changes.DropCheckpoints: ended_experiments.on_drop_checkpoints,
    changes.ChangeSearch: searches.on_change_search,
    changes.KillTrial: searches.on_kill_trial,
    changes.ProfileTrial: searches.on_profile_trial,
    changes.ChangeTrial: searches.on_change_trial,
    # from samplers
    events.HparamsSampled: searches.on_hparams_sampled,
    events.TrialJudged: searches.on_trial_judged,
    # from agents
    events.AgentRegistered: agents.on_agent_registered,
    events.AgentAway: agents.on_agent_away,
    events.AgentLost: agents.on_agent_lost,
    events.DevicesReported: agents.on_devices_reported,
    GangStarted: runs.on_gang_started,
    GangExited: runs.on_gang_exited,
    # from ranks
    events.RecordArrived: runs.on_record_arrived,
    events.ValidationReported: runs.on_validation_reported,
    events.LossReported: runs.on_loss_reported,
    events.LogMatched: runs.on_log_matched,
    # from the master itself
    events.ExperimentDeleted: ended_experiments.on_experiment_deleted,
    events.CheckpointsDeleted: ended_experiments.on_checkpoints_deleted,
    events.ClockStepped: experiment_changes.on_clock_stepped,
    events.NewsSetAside: on_news_set_aside,
}


class Machine:
    """See the module's docstring.

    Args:
        state: Of an earlier machine; None: empty.
    """

    def __init__(self, state: MachineState | None = None) -> None:
        self.state = state or MachineState()
        self.indexes = Indexes(self.state)
        self.queue = Queue(self.state)
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
        turn = Turn(self.state, self.indexes, self.queue, self.searches, now)
        self._changes, self._failures = turn.changes, turn.failures
        try:
            HANDLERS[type(event)](turn, event)
            _place_waiting(turn)
        except HandlerFailed:
            raise
        except Exception as error:
            has_changed = turn.changes != Changes() or turn.commands
            if isinstance(error, DetError) and not has_changed:
                self.state.seq -= 1
                raise
            raise HandlerFailed(error_line(error)) from error
        return turn.commands

    def take_over(self, other: Machine) -> None:
        """Take the state of another machine, which is not to be used any more."""
        self.state, self.indexes = other.state, other.indexes
        self.queue, self.searches = other.queue, other.searches
        self._changes, self._failures = Changes(), []

    def changes(self) -> Changes:
        """Return what the last event touched."""
        return self._changes

    def failures(self) -> list[Exception]:
        """Return what passes of the scheduler raised in the last event."""
        return self._failures

    def dump(self) -> str:
        """Return the whole state as JSON, from which another machine goes on as this one would."""
        self.searches.write_into(self.state)
        try:
            return self.state.model_dump_json()
        finally:
            self.searches.take_back(self.state)

    def pending(self) -> list[Command]:
        """Return the questions to samplers and pruners that were not answered yet."""
        turn = Turn(self.state, self.indexes, self.queue, self.searches, now=0.0)
        for experiment in self.state.living_experiments():
            ask(turn, experiment, self.searches.of(experiment).pending())
        return turn.commands


def _place_waiting(turn: Turn) -> None:
    """Decide anew about every pool, if something has changed, and carry it out."""
    if turn.queue.version == turn.queue.decided:
        return
    for name in turn.state.pool_configs:
        carry_out(turn, _decide(turn, name))
    turn.queue.decided = turn.queue.version


def _decide(turn: Turn, name: str) -> Decisions:
    """Decide about a pool: an experiment that makes a pass raise must not stop the others.

    If a pass works without the experiment that it looked at, that one is given up. Else nothing
    starts in this pool until something changes; then it is tried again.
    """
    while True:
        snapshot = turn.queue.snapshot(name)
        try:
            decisions = decide(snapshot, turn.now)
        except PassFailed as failed:
            error = failed.__cause__
            assert isinstance(error, Exception)
            turn.failures.append(error)
            what = printable(error_line(error))[:_LONGEST_REASON]
            culprit = _find_culprit(snapshot, failed.request_id, turn.now)
            if culprit is None:
                turn.queue.stuck[name] = what
                return Decisions()
            what = f"a pass of the scheduler ({what})"
            on_news_set_aside(turn, NewsSetAside(experiment_id=culprit, what=what, is_fatal=True))
        else:
            turn.queue.stuck.pop(name, None)
            return decisions


def _find_culprit(snapshot: Snapshot, request_id: str, now: float) -> int | None:
    """Return the experiment that a failed pass looked at, if one without it works."""
    if not request_id:
        return None
    group = snapshot.waiting[request_id].group
    waiting = (one.id for one in snapshot.waiting.values() if one.group == group)
    try:
        decide(snapshot.without(*waiting), now)
    except PassFailed:
        return None
    return group


__all__ = ["Changes", "Command", "Machine", "ToAgent", "TruncateMetrics"]
