"""The master's mind: events in, commands out, nothing else.

    Machine.handle(event, now) -> commands

is the only way its state changes. It does no I/O, reads no clock, and draws only random numbers
that derive from an experiment's seed: the same events give the same state and commands, always.
That is what makes a restart safe: snapshot, then the later events again.

    user     Submitted, Pause-, Activate-, Cancel-, KillRequested ──► user_events  ─┐
    agent    AgentRegistered, AgentLost                           ──► agent_events ─┼─► placing
    rank     GangStarted, GangExited, RecordArrived,              ──► run_events   ─┘      │
             ValidationReported                                                            ▼
                                              StartGang, SignalGang, KillGang, CloseRun (agents)
                                              TruncateMetrics                           (store)

Rules
 1. A handler checks first and changes after: an event that is refused has changed nothing.
 2. The tables of lifecycle.py say which state may follow which; verdict.py says what the end of a
    gang means; searching.py when trials are made and experiments end.
 3. Every command is safe to repeat. When an agent registers, whatever it may have missed is
    commanded again.
 4. A trial has one allocation at a time. News of another one is old news and changes nothing.
 5. After each event, nobody waits who fits (placing.py), and whoever waits knows why.

Knows nothing of HTTP, SQLite or processes. The idea is distributed's scheduler state machine; what
that spreads over transition methods is here in tables and in handlers by who speaks.
"""

from __future__ import annotations

from typing import assert_never

from det_jupyter.errors import DetError
from det_jupyter.master import events
from det_jupyter.master.agent_events import on_agent_lost, on_agent_registered
from det_jupyter.master.commands import Command, ToAgent, TruncateMetrics
from det_jupyter.master.events import Event
from det_jupyter.master.invariants import check
from det_jupyter.master.placing import place_waiting
from det_jupyter.master.run_events import (
    on_gang_exited,
    on_gang_started,
    on_record_arrived,
    on_validation_reported,
)
from det_jupyter.master.state import MachineState
from det_jupyter.master.turn import Changes, Turn
from det_jupyter.master.user_events import (
    on_activate_requested,
    on_end_requested,
    on_pause_requested,
    on_submitted,
)
from det_jupyter.wire import GangExited, GangStarted, State


class Machine:
    """See the module's docstring.

    Args:
        state: What an earlier machine knew; None: nothing yet.
    """

    def __init__(self, state: MachineState | None = None) -> None:
        self.state = state or MachineState()
        self._changes = Changes()

    def handle(self, event: Event, now: float) -> list[Command]:
        """Bring the state forward by one event and return what has to be done.

        Raises:
            ConfigError: An experiment that can never run.
            NotFound: The event is about an experiment that does not exist.
            Conflict: The event does not fit the state.
        """
        self.state.seq += 1
        turn = Turn(self.state, now)
        self._changes = turn.changes
        try:
            _dispatch(turn, event)
        except DetError:
            self.state.seq -= 1
            raise
        place_waiting(turn)
        return turn.commands

    def changes(self) -> Changes:
        """Return what the last event touched."""
        return self._changes

    def check(self) -> None:
        """Assert every invariant of the state."""
        check(self.state)

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
        case events.AgentRegistered():
            on_agent_registered(turn, event)
        case events.AgentLost():
            on_agent_lost(turn, event.agent_id)
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
