"""The pure machine at the centre of the master: events in, commands out.

    Machine.handle(event, now) -> commands

is the only way its state changes. It does no I/O, reads no clock, and draws only random numbers
that derive from an experiment's seed: the same events always give the same state and commands. So
the state can be restored after a restart: load a snapshot, and handle the later events again.

Events come from users, samplers, agents, ranks and the master itself; HANDLERS maps each to its
handler.

    destination   commands
    agents        StartGang, ExtendGang, PassOrders, SignalGang, KillGang, CloseRun
    store         TruncateMetrics, DeleteCheckpoints, DeleteExperiment
    sampler       ConsultSampler

Rules
 1. A handler checks first and changes afterwards: an event that is refused has changed nothing. If
    a handler fails half way, the machine must be rebuilt (giving_up.py, restoring.py).
 2. The tables in lifecycle.py list the allowed transitions; outcome.py decides what the end of a
    gang means; searching.py when trials are created and experiments end.
 3. Every command is safe to repeat. When an agent registers, commands that it may have missed are
    sent again.
 4. A trial has one allocation at a time. Events about another allocation change nothing.
 5. After each event, no trial waits that could start (`_run_scheduler`); wait_reasons.py computes
    why each waiting trial waits.
 6. The cost of an event does not grow with the number of trials that are over: look-ups contain
    only the others (queue.py, indexes.py), and searches stay in memory (turn.py). If the
    scheduler must decide after an event, the cost grows with the trials that wait or run.

Prior art: distributed's scheduler state machine. Its transition methods are tables here, and
handlers grouped by subject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.contract.messages import (
    CreateModel,
    DeleteModel,
    DeleteVersion,
    EditModel,
    EditVersion,
    GangExited,
    GangStarted,
    RanksSeen,
    RegisterVersion,
    RoomReported,
    SetAlias,
    StartUnmanaged,
    changes,
)
from det_jupyter.contract.values.text import error_line, printable
from det_jupyter.errors import DetError
from det_jupyter.master.machine.handlers import (
    agents,
    ended_experiments,
    exits,
    experiment_changes,
    importing,
    models,
    queueing,
    runs,
    searches,
    unmanaged,
)
from det_jupyter.master.machine.handlers.unmanaged import find_run, managed
from det_jupyter.master.machine.model import events
from det_jupyter.master.machine.model.commands import Command, ToAgent, TruncateMetrics
from det_jupyter.master.machine.model.events import ContentSetAside, Event
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.queue import Queue
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.machine.model.turn import Changes, HandlerFailed, Searches, Turn
from det_jupyter.master.machine.rules import full_disks
from det_jupyter.master.machine.rules.decided import apply_decisions
from det_jupyter.master.machine.rules.giving_up import on_content_set_aside
from det_jupyter.master.machine.rules.neighbours import publish_wants
from det_jupyter.master.machine.rules.placing import complete_pauses
from det_jupyter.master.machine.rules.searching import consult
from det_jupyter.scheduler.decide import PassFailed, decide
from det_jupyter.scheduler.model import Decisions
from det_jupyter.scheduler.snapshot import Snapshot

_LONGEST_REASON = 300  # characters

HANDLERS: Mapping[type[Any], Callable[[Turn, Any], None]] = {
    # from users
    events.ExperimentSubmitted: experiment_changes.on_submitted,
    changes.Pause: managed(experiment_changes.on_pause),
    changes.Activate: managed(experiment_changes.on_activate),
    changes.Cancel: managed(experiment_changes.on_end),
    changes.Kill: managed(experiment_changes.on_end),
    changes.ChangeDetails: experiment_changes.on_change_details,
    changes.ChangeResources: managed(queueing.on_change_resources),
    changes.MoveInQueue: managed(queueing.on_move_in_queue),
    changes.ChangeQueue: queueing.on_change_queue,
    changes.SwitchSlots: queueing.on_switch_slots,
    changes.SetPools: queueing.on_set_pools,
    changes.Archive: ended_experiments.on_archive,
    changes.Unarchive: ended_experiments.on_archive,
    changes.Delete: ended_experiments.on_delete,
    events.ContinueRequested: ended_experiments.on_continue_requested,
    changes.SetRetention: ended_experiments.on_set_retention,
    changes.DropCheckpoints: ended_experiments.on_drop_checkpoints,
    changes.MoveCheckpoints: ended_experiments.on_move_checkpoints,
    changes.ChangeSearch: managed(searches.on_change_search),
    changes.KillTrial: managed(searches.on_kill_trial),
    changes.ProfileTrial: managed(searches.on_profile_trial),
    changes.ChangeTrial: managed(searches.on_change_trial),
    changes.ImportExperiment: importing.on_import,
    StartUnmanaged: unmanaged.on_start_unmanaged,
    CreateModel: models.on_create_model,
    EditModel: models.on_edit_model,
    DeleteModel: models.on_delete_model,
    SetAlias: models.on_set_alias,
    RegisterVersion: models.on_register_version,
    EditVersion: models.on_edit_version,
    DeleteVersion: models.on_delete_version,
    # from samplers
    events.HparamsSampled: searches.on_hparams_sampled,
    events.TrialJudged: searches.on_trial_judged,
    # from agents
    events.AgentRegistered: agents.on_agent_registered,
    events.AgentAway: agents.on_agent_away,
    events.AgentRemoved: agents.on_agent_removed,
    events.AgentsReachable: agents.on_agents_reachable,
    events.ClustersChanged: agents.on_clusters_changed,
    events.AgentLost: agents.on_agent_lost,
    events.DevicesReported: agents.on_devices_reported,
    GangStarted: runs.on_gang_started,
    RanksSeen: runs.on_ranks_seen,
    GangExited: exits.on_gang_exited,
    RoomReported: full_disks.on_room_reported,
    # from ranks
    events.RecordArrived: runs.on_record_arrived,
    events.ValidationReported: runs.on_validation_reported,
    events.LossReported: runs.on_loss_reported,
    events.LogMatched: runs.on_log_matched,
    # from the master itself
    events.ExperimentDeleted: ended_experiments.on_experiment_deleted,
    events.CheckpointsDeleted: ended_experiments.on_checkpoints_deleted,
    events.UnmanagedHeard: unmanaged.on_unmanaged_heard,
    events.RoomFound: full_disks.on_room_found,
    events.SlotsSettled: queueing.on_slots_settled,
    events.ClockStepped: experiment_changes.on_clock_stepped,
    events.ContentSetAside: on_content_set_aside,
}


class Machine:
    """The master's state, which only events change; see the module's docstring.

    Args:
        state: The state of an earlier machine; None: an empty state.
    """

    def __init__(self, state: MachineState | None = None) -> None:
        self.state = state or MachineState()
        self.indexes = Indexes(self.state)
        self.queue = Queue(self.state)
        self.searches = Searches()
        self._changes = Changes()
        self._scheduler_errors: list[Exception] = []

    def handle(self, event: Event, now: float) -> list[Command]:
        """Update the state by one event, and return the commands that follow.

        Raises:
            ConfigError: The experiment can never run; nothing has changed.
            NotFound: The event is about an experiment that does not exist; nothing has changed.
            Conflict: The state does not allow the event; nothing has changed.
            HandlerFailed: Any other error. The state may be changed in part: `take_over` another
                machine.
        """
        self.state.seq += 1
        turn = Turn(self.state, self.indexes, self.queue, self.searches, now)
        self._changes, self._scheduler_errors = turn.changes, turn.scheduler_errors
        try:
            HANDLERS[type(event)](turn, event)
            complete_pauses(turn)
            _run_scheduler(turn)
        except HandlerFailed:
            raise
        except Exception as error:  # a handler with a mistake may raise anything
            has_changed = turn.changes != Changes() or turn.commands
            if isinstance(error, DetError) and not has_changed:
                self.state.seq -= 1
                raise
            raise HandlerFailed(error_line(error)) from error
        return turn.commands

    def take_over(self, other: Machine) -> None:
        """Replace this machine's state by that of `other`, which must not be used afterwards."""
        self.state, self.indexes = other.state, other.indexes
        self.queue, self.searches = other.queue, other.searches
        self._changes, self._scheduler_errors = Changes(), []

    def changes(self) -> Changes:
        """Return what the last event has changed."""
        return self._changes

    def scheduler_errors(self) -> list[Exception]:
        """Return the errors that the scheduler raised during the last event."""
        return self._scheduler_errors

    def dump(self) -> str:
        """Return the whole state as JSON. A machine with that state behaves as this one."""
        self.searches.store_snapshots_in(self.state)
        try:
            return self.state.model_dump_json()
        finally:
            self.searches.clear_snapshots_in(self.state)

    def pending_questions(self) -> list[Command]:
        """Return the questions to samplers and pruners that have no answer yet."""
        turn = Turn(self.state, self.indexes, self.queue, self.searches, now=0.0)
        for experiment in self.state.unfinished_experiments():
            consult(turn, experiment, self.searches.of(experiment).pending())
        return turn.commands


def _run_scheduler(turn: Turn) -> None:
    """Decide about every pool and apply the decisions, if the scheduler's input has changed."""
    if turn.queue.version == turn.queue.decided:
        return
    turn.queue.look_again_at.clear()
    for name in turn.state.pool_configs:
        decisions = _decide(turn, name)
        apply_decisions(turn, decisions)
        if decisions.look_again_at is not None:
            turn.queue.look_again_at[name] = decisions.look_again_at
        publish_wants(turn, name)
    turn.queue.decided = turn.queue.version


def _decide(turn: Turn, name: str) -> Decisions:
    """Run the scheduler for a pool; an experiment at which it raises must not block the others.

    If the scheduler succeeds without the experiment that it was examining, that experiment is
    given up. Otherwise no trial starts in this pool before the next change of the scheduler's
    input.
    """
    while True:
        snapshot = turn.queue.snapshot(name)
        try:
            decisions = decide(snapshot, turn.now)
        except PassFailed as failed:
            error = failed.__cause__
            assert isinstance(error, Exception)
            turn.scheduler_errors.append(error)
            reason = printable(error_line(error))[:_LONGEST_REASON]
            at_fault = _find_experiment_at_fault(snapshot, failed.request_id, turn.now)
            if at_fault is None:
                turn.queue.stuck[name] = reason
                return Decisions()
            what = f"a pass of the scheduler ({reason})"
            on_content_set_aside(
                turn, ContentSetAside(experiment_id=at_fault, what=what, is_fatal=True)
            )
        else:
            turn.queue.stuck.pop(name, None)
            return decisions


def _find_experiment_at_fault(snapshot: Snapshot, request_id: str, now: float) -> int | None:
    """Return the experiment that was being examined, if the scheduler succeeds without it."""
    if not request_id:
        return None
    group = snapshot.waiting[request_id].group
    waiting = (one.id for one in snapshot.waiting.values() if one.group == group)
    try:
        decide(snapshot.without(*waiting), now)
    except PassFailed:
        return None
    return group


__all__ = ["Changes", "Command", "Machine", "ToAgent", "TruncateMetrics", "find_run"]
