"""The machine's state: plain data that is stored as JSON, without rules of its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from pydantic import field_validator

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.pools import DEFAULT_POOL, PoolConfig, parse_pools
from det_jupyter.config.storages import location_of
from det_jupyter.contract.messages import (
    CheckpointRef,
    CheckpointView,
    Cut,
    DeviceFault,
    DeviceProcess,
    Divergence,
    SearchView,
    SlotView,
    StoredExperiment,
    StoredModel,
    StoredTrial,
    StoredVersion,
    WantSlots,
    Wire,
)
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.contract.values.entrypoints import Command, Program, try_parse_entrypoint
from det_jupyter.errors import NotFound
from det_jupyter.master.machine.model.allocations import Allocation, GangPart, LostRun
from det_jupyter.master.machine.model.configured import Configured
from det_jupyter.searcher import ExitReason

_MAX_DIGITS = 20  # digits of an id; parsing a much longer number would be slow
_MAX_NOTICES = 10  # notices kept per trial; the first ones are the most informative


class Trial(StoredTrial):
    """One sample of hyperparameters, being trained.

    `is_resting` is also True before the trial has its first target.
    """

    target_is_last: bool = False
    warm_start: CheckpointRef | None = None  # the first run loads its weights
    exit_reason: ExitReason | None = None
    runs: int = 0
    losses: list[LostRun] = []  # consecutive runs that were lost before their first step
    full_disks: int = 0  # number of consecutive runs that ended because of a full disk
    allocation: Allocation | None = None
    latest_checkpoint: CheckpointRef | None = None
    checkpoints: list[str] = []  # uuids, oldest first
    metrics_by_step: dict[int, float] = {}  # values of the searcher metric
    message: str = ""
    divergences: dict[str, Divergence] = {}  # current ones by "group.metric", oldest first
    # Why the trial rests; why it queues is computed by wait_reasons.py.
    waiting_for: str | None = None
    avoids: list[str] = []  # agents that it must not run on
    story: list[str] = []  # its last events, for error messages
    source: str = ""  # of an imported run: its name in the other tool

    @field_validator("losses", mode="before")
    @classmethod
    def _without_number(cls, losses: Any) -> Any:
        """Drop a number of losses, which older versions have stored."""
        return [] if isinstance(losses, int) else losses

    @property
    def holds_slots(self) -> bool:
        """Whether slots are allocated to it, so that ranks may be running."""
        return self.allocation is not None and self.allocation.holds_slots

    @property
    def num_slots(self) -> int:
        """Number of slots that its gang holds."""
        held = self.allocation.slots if self.allocation and self.holds_slots else []
        return sum(slot.id >= 0 for slot in held)

    def add_notice(self, text: str, *, is_alarm: bool = False) -> None:
        """Store a notice or an alarm, unless it is stored already; of many, the first are kept."""
        kept = self.alarms if is_alarm else self.notices
        if text not in kept and len(kept) < _MAX_NOTICES:
            kept.append(text)

    @property
    def divergence(self) -> Divergence | None:
        """The oldest divergence that has not ended: a metric that is still NaN or infinite."""
        return next(iter(self.divergences.values()), None)


class Experiment(StoredExperiment, Configured):
    """A configuration and its trials."""

    origins: dict[str, str] = {}  # where values of the configuration come from, by path
    searcher: dict[str, Any] | None = None  # snapshot of the search; None: not started, or over
    search_view: SearchView | None = None
    search_progress: float = 0.0
    # The checkpoint whose weights its trials load at their start.
    warm_start: CheckpointRef | None = None
    continues: int | None = None  # the trial whose training it continues
    is_quiet: bool = False  # no notification of its end: the submitting program reports it
    is_temporary: bool = False  # deleted after its end (background/cleanup.py)
    key: str = ""  # idempotency key of its submission
    position: float = 0.0  # order among experiments of one priority: its id, unless it was moved
    trial_ids: list[int] = []
    best_metric: float | None = None
    num_set_aside: int = 0  # events about it that could not be handled (giving_up.py)
    set_aside: str = ""  # description of the first of them
    is_given_up: bool = False  # it was ended because of such an event
    alerted: list[AlertKind] = []  # alerts that are not raised again (rules/alerts.py)
    source: str = ""  # of an imported experiment: where its runs come from
    run_keys: list[str] = []  # of an unmanaged one: the keys of its runs
    cut_keys: list[str] = []  # those of runs that were silent when they were ended

    def reconfigure(
        self,
        config: dict[str, Any],
        origins: Iterable[str] = (),
        settings: ExperimentConfig | None = None,
    ) -> None:
        """Replace the configuration.

        Args:
            config: The effective configuration from now on.
            origins: Paths of the values that the user has changed.
            settings: The parsed configuration, if it is parsed already.
        """
        self.config = config
        self.origins |= dict.fromkeys(origins, "you")
        for derived in ("settings", "why_one_computer"):
            self.__dict__.pop(derived, None)
        if settings is not None:
            self.with_settings(settings)

    # Attributes as in StoredExperiment: read for every experiment, so they do not parse it.

    @property
    def name(self) -> str:
        """The experiment's title."""
        return str(self.config["name"])

    @property
    def is_single_agent(self) -> bool:
        """Whether a trial must have all its slots on one agent."""
        return bool(self._section("resources").get("is_single_node"))

    @property
    def location(self) -> str | None:
        """The storage of its checkpoints, as `location_of` returns it."""
        return location_of(self.config["checkpoint_storage"])

    @property
    def bucket(self) -> str:
        """The bucket of its checkpoints, to which agents upload; "" without one."""
        location = self.location
        return location if location is not None and is_in_bucket(location) else ""

    @property
    def preemption_timeout(self) -> int:
        """Seconds that a trial has to save its state and leave."""
        return int(self.config["preemption_timeout"])

    @cached_property
    def why_one_computer(self) -> str:
        """Why a trial's ranks cannot be on several computers; "" if they can."""
        return why_one_computer(self.config.get("entrypoint") or self.capsule.entrypoint)


def why_one_computer(entrypoint: Any) -> str:
    """Return why the ranks of an entrypoint cannot be on several computers; "" if they can."""
    if isinstance(try_parse_entrypoint(entrypoint), Program | Command):
        return (
            "its entrypoint is a program, and launchers start ranks on one computer; `entrypoint: "
            "model_def:Trial`, or a class or function of a notebook, can be on several"
        )
    return ""


class Model(StoredModel):
    """A model of the registry with its versions."""

    versions: list[StoredVersion] = []  # by number
    last_number: int = 0  # of a version, also of one that was deleted

    def version(self, number: int) -> StoredVersion:
        """Return a version.

        Raises:
            NotFound: There is none with this number.
        """
        found = next((each for each in self.versions if each.number == number), None)
        if found is None:
            raise NotFound(f"model {self.name} has no version {number}")
        return found


class Agent(Wire):
    """An agent process and its slots."""

    id: str
    session: str
    hostname: str
    pid: int
    birth: str = ""
    slots: list[SlotView]
    is_away: bool = False  # not connected; its runs continue
    problem: str = ""  # why it is not connected, and what to do
    # Address of its computer for other agents; "": the same computer as the master.
    address: str = ""
    port: int = 0  # port for connections of other agents; 0: none
    disabled: list[int] = []  # slots that a user has disabled
    occupied: dict[int, list[DeviceProcess]] = {}  # by slot: other processes on its device
    lost: dict[int, DeviceFault] = {}  # by slot: its device does not work
    is_shared: bool = False  # other masters use its slots, too
    wants: WantSlots = WantSlots(sizes=[], slot_ids=[])  # what it was sent last
    is_remote: bool = False  # on another computer; there it ends its gangs when the master is away
    is_removed: bool = False  # a user has removed it: it cannot connect any more
    versions: dict[str, str] = {}  # versions of Python and torch, if it is on another computer
    left_at: float | None = None  # when it was disconnected, or began to exit, UTC seconds
    left_slots: list[SlotView] = []  # of an exiting agent: the slots that it had
    cluster: str = ""  # the cluster that its computer is a node of, if it is one
    node: str = ""  # the node, as the cluster identifies it
    freed_at: dict[int, float] = {}  # by slot: when it became free for the last time

    def note_freed(self, slots: Iterable[int], now: float) -> None:
        """Record that these slots are free from now on, unless they are held or withheld."""
        self.freed_at |= dict.fromkeys(slots, now)

    def used_by_others(
        self, *, shares_devices: bool, has_neighbours: bool = True
    ) -> dict[int, list[DeviceProcess]]:
        """Return by slot why it is not given out: processes of others, claims of other masters.

        Args:
            shares_devices: Whether processes are no reason.
            has_neighbours: Whether claims are one.
        """
        found = {
            slot: [one for one in users if (has_neighbours if one.claim else not shares_devices)]
            for slot, users in self.occupied.items()
        }
        return {slot: users for slot, users in found.items() if users}

    @property
    def former(self) -> Agent:
        """The agent with the slots that it offered before it began to exit."""
        return self.model_copy(update={"is_away": False, "slots": self.slots or self.left_slots})


class CurrentCut(Cut):
    """Two agents that cannot reach each other now, so no gang is placed on both."""

    since: float  # UTC seconds


class MachineState(Wire):
    """Everything that the machine stores."""

    seq: int = 0  # number of the last event
    last_experiment_id: int = 0
    last_trial_id: int = 0
    last_model_id: int = 0
    experiments: dict[int, Experiment] = {}
    trials: dict[int, Trial] = {}
    agents: dict[str, Agent] = {}
    lost_agents: dict[str, Agent] = {}  # agents that have exited; they may register again
    cuts: list[CurrentCut] = []
    clusters: list[str] = []  # names of the clusters whose nodes become agents
    checkpoints: dict[str, CheckpointView] = {}
    models: dict[int, Model] = {}
    pools: list[dict[str, Any]] = []  # as in pools.yaml, where the default pool may be missing
    disabled: dict[str, list[int]] = {}  # disabled slots by agent, including agents that have left

    @property
    def gone_agents(self) -> list[Agent]:
        """The agents that offer no slots now: lost, not connected, or exiting."""
        known = self.agents.values()
        away = (agent for agent in known if agent.is_away or agent.left_at is not None)
        return [*self.lost_agents.values(), *away]

    def experiment(self, experiment_id: int) -> Experiment:
        """Return an experiment.

        Raises:
            NotFound: There is no experiment with this id.
        """
        experiment = self.experiments.get(experiment_id)
        if experiment is None:
            raise NotFound(f"there is no experiment {experiment_id}; `list` shows those that are")
        return experiment

    def trial(self, trial_id: int) -> Trial:
        """Return a trial.

        Raises:
            NotFound: There is no trial with this id.
        """
        trial = self.trials.get(trial_id)
        if trial is None:
            raise NotFound(f"there is no trial {trial_id}")
        return trial

    def model(self, name: str) -> Model:
        """Return a model of the registry.

        Raises:
            NotFound: There is none of this name.
        """
        found = next((each for each in self.models.values() if each.name == name), None)
        if found is None:
            raise NotFound(f"there is no model {name}; `model list` shows those that are")
        return found

    def checkpoints_of(self, experiment_id: int) -> list[CheckpointView]:
        """Return the checkpoints of an experiment, oldest first."""
        own = (one for one in self.checkpoints.values() if one.experiment_id == experiment_id)
        return sorted(own, key=lambda one: (one.created_at, one.steps_completed))

    def registered(self) -> dict[str, str]:
        """Return the checkpoints that are versions of models: what they are, by uuid."""
        return {
            version.uuid: f"version {version.number} of model {model.name}"
            for model in self.models.values()
            for version in model.versions
        }

    def unfinished_experiments(self) -> list[Experiment]:
        """Return the experiments that are not over."""
        return [each for each in self.experiments.values() if not each.state.is_terminal]

    def trials_of(self, experiment: Experiment) -> list[Trial]:
        """Return an experiment's trials, in the order of their indices."""
        return [self.trials[trial_id] for trial_id in experiment.trial_ids]

    def trial_at(self, experiment: Experiment, index: int) -> Trial:
        """Return an experiment's trial by its index."""
        return self.trials[experiment.trial_ids[index]]

    def find_allocation(self, allocation_id: str) -> tuple[Trial, Allocation] | None:
        """Return an allocation and its trial, if it holds slots now."""
        trial = self._find_trial_of(allocation_id)
        if trial is None or trial.allocation is None or not trial.allocation.holds_slots:
            return None
        return trial, trial.allocation

    def process_of(self, agent_id: str) -> str:
        """Return a key that is the same for agents of one agent process.

        An agent on another computer is a process of its own; those of this computer share one.
        """
        agent = self.agents.get(agent_id) or self.lost_agents.get(agent_id)
        return agent_id if agent is not None and agent.is_remote else ""

    def part_on(self, allocation: Allocation, agent_id: str) -> GangPart | None:
        """Return the part of a gang that is on an agent's process, None if there is none."""
        is_here = not self.process_of(agent_id)
        found = (
            part
            for part in allocation.parts
            if part.agent_id == agent_id or (is_here and not part.is_remote)
        )
        return next(found, None)

    def trial_of(self, allocation_id: str) -> Trial:
        """Return the trial whose current allocation has this id; there must be one."""
        trial = self._find_trial_of(allocation_id)
        assert trial is not None, allocation_id
        return trial

    def _find_trial_of(self, allocation_id: str) -> Trial | None:
        match allocation_id.split("."):
            case [_, trial_id, _] if trial_id.isdecimal() and len(trial_id) < _MAX_DIGITS:
                trial = self.trials.get(int(trial_id))
            case _:
                return None
        if trial is None or trial.allocation is None or trial.allocation.id != allocation_id:
            return None
        return trial

    @cached_property
    def pool_configs(self) -> dict[str, PoolConfig]:
        """All pools by name, including the default pool."""
        return {pool.pool_name: pool for pool in parse_pools({"pools": self.pools}).pools}

    def set_pools(self, pools: list[dict[str, Any]]) -> None:
        """Replace the pools by those of this configuration."""
        self.pools = pools
        self.__dict__.pop("pool_configs", None)

    def pool_of(self, experiment: Experiment) -> str:
        """Return an experiment's pool, or the default pool if its own was removed."""
        return experiment.pool if experiment.pool in self.pool_configs else DEFAULT_POOL

    def pool_of_agent(self, agent_id: str) -> str:
        """Return the pool that an agent belongs to."""
        named = (name for name, config in self.pool_configs.items() if config.has(agent_id))
        return next(named, DEFAULT_POOL)

    def pool_of_cluster(self, cluster: str) -> str:
        """Return the pool that the agents of a cluster's nodes belong to."""
        return self.pool_of_agent(f"{cluster}-")

    def cut_from(self, agent_id: str) -> frozenset[str]:
        """Return the agents that an agent cannot reach now."""
        pairs = [cut.pair for cut in self.cuts if agent_id in cut.pair]
        return frozenset().union(*pairs) - {agent_id}

    def add_cut(self, cut: Cut, now: float) -> None:
        """Record that two agents cannot reach each other, unless it is recorded already."""
        if cut.pair not in [known.pair for known in self.cuts]:
            self.cuts.append(CurrentCut.built_from(cut, since=now))

    def forget_cuts(self, *agents: str) -> None:
        """Forget that two agents cannot reach each other; given one agent, forget its cuts."""
        self.cuts = [cut for cut in self.cuts if not cut.pair.issuperset(agents)]

    def agents_of(self, pool: str) -> list[Agent]:
        """Return the agents of a pool."""
        return [each for each in self.agents.values() if self.pool_of_agent(each.id) == pool]
