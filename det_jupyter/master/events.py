"""What the machine is told: events, in the past tense. Requests of users are events too.

Events are stored as JSON and replayed after a restart, so they hold everything that the machine
needs to come to the same state again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from det_jupyter.records import (
    CheckpointSaved,
    FirstStep,
    RankFailure,
    RankStarted,
    RunEnded,
    TargetReached,
)
from det_jupyter.wire import Capsule, GangExited, GangStarted, RunReport, SlotView, Wire


class ExperimentSubmitted(Wire):
    """A user asked for an experiment.

    Args:
        config: The effective document.
        origins: Where its values come from, by path: "you" or "template"; the others are defaults.
        continues: A trial to go on with: this experiment's one trial begins where that one is.
    """

    kind: Literal["experiment_submitted"] = "experiment_submitted"
    config: dict[str, Any]
    capsule: Capsule
    python: str
    cwd: str
    notebook: str | None = None
    template: str | None = None
    origins: dict[str, str] = {}
    continues: int | None = None


class PauseRequested(Wire):
    """All trials shall save their state and give their slots back."""

    kind: Literal["pause_requested"] = "pause_requested"
    experiment_id: int


class ActivateRequested(Wire):
    """A paused experiment shall go on."""

    kind: Literal["activate_requested"] = "activate_requested"
    experiment_id: int


class CancelRequested(Wire):
    """An experiment shall end after its trials have saved their state."""

    kind: Literal["cancel_requested"] = "cancel_requested"
    experiment_id: int


class KillRequested(Wire):
    """An experiment shall end now."""

    kind: Literal["kill_requested"] = "kill_requested"
    experiment_id: int


class KillTrialRequested(Wire):
    """One trial shall end now; its experiment goes on."""

    kind: Literal["kill_trial_requested"] = "kill_trial_requested"
    trial_id: int


class SearchChangeRequested(Wire):
    """A running search shall have other limits; None: as it is."""

    kind: Literal["search_change_requested"] = "search_change_requested"
    experiment_id: int
    max_trials: int | None = None
    max_length: dict[str, int] | None = None
    max_concurrent_trials: int | None = None
    hyperparameters: dict[str, Any] | None = None


class HparamsSampled(Wire):
    """The sampler has answered: what the trial to be made shall have, or why it cannot say."""

    kind: Literal["hparams_sampled"] = "hparams_sampled"
    experiment_id: int
    index: int
    hparams: dict[str, Any] | None = None
    error: str = ""


class TrialJudged(Wire):
    """The pruner has answered, or failed."""

    kind: Literal["trial_judged"] = "trial_judged"
    experiment_id: int
    index: int
    is_pruned: bool
    error: str = ""


class AgentRegistered(Wire):
    """An agent process said who it is, what it has, and which runs it knows."""

    kind: Literal["agent_registered"] = "agent_registered"
    agent_id: str
    session: str
    hostname: str
    pid: int
    slots: list[SlotView]
    runs: list[RunReport] = []


class AgentLost(Wire):
    """An agent is gone and no successor came: whatever ran there is dead."""

    kind: Literal["agent_lost"] = "agent_lost"
    agent_id: str


class ValidationReported(Wire):
    """The searcher's metric of one validation; None when it was no number.

    `time` is the searcher's time metric, if it has one.
    """

    kind: Literal["validation_reported"] = "validation_reported"
    allocation_id: str
    steps_completed: int
    metric: float | None
    time: float | None = None


class RecordArrived(Wire):
    """A rank journaled something that the machine has to know."""

    kind: Literal["record_arrived"] = "record_arrived"
    allocation_id: str
    rank: int
    record: Annotated[
        RankStarted | FirstStep | CheckpointSaved | TargetReached | RunEnded | RankFailure,
        Field(discriminator="kind"),
    ]


Event = Annotated[
    ExperimentSubmitted
    | PauseRequested
    | ActivateRequested
    | CancelRequested
    | KillRequested
    | KillTrialRequested
    | SearchChangeRequested
    | HparamsSampled
    | TrialJudged
    | AgentRegistered
    | AgentLost
    | GangStarted
    | GangExited
    | ValidationReported
    | RecordArrived,
    Field(discriminator="kind"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def parse_event(text: str | bytes) -> Event:
    """Return the event that `model_dump_json` wrote."""
    return _EVENT.validate_json(text)
