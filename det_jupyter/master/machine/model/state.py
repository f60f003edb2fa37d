"""The machine's state, as plain data that can be stored and read back. It has no rules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from pydantic import model_validator

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.config.pools import DEFAULT_POOL, PoolConfig, parse_pools
from det_jupyter.contract.messages import (
    AllocationState,
    AllocationView,
    CheckpointRef,
    CheckpointView,
    DeviceProcess,
    Divergence,
    SearchView,
    SlotView,
    StoredExperiment,
    StoredTrial,
    Target,
    Wire,
)
from det_jupyter.contract.run.journal import RankFailure, RankStarted, RunEnded
from det_jupyter.errors import NotFound
from det_jupyter.searcher import ExitReason

_DIGITS = 20  # of numbers: no trial has one of as many


class Allocation(AllocationView):
    """One period in which a trial waits for, or holds, slots.

    `agent_id` is its chief's agent, which gets the commands. `slots` are in rank order; id -1 is
    a place that is no slot. `ranks` are there once the agent said that they exist.
    """

    queued_at: float
    is_backfill: bool = False  # in slots that a more urgent trial waits for
    promised: list[str] = []  # agents where others were asked to leave for it, while it waits
    excludes: list[str] = []  # agents that its trial shall avoid from its next run on
    is_hopeless: bool = False  # it printed what a policy says is not worth another try
    starts_from: CheckpointRef | None = None
    planned_target: Target = None  # the trial's may have moved since
    ranks_up: dict[int, RankStarted] = {}  # which ranks have journaled that they are up
    asked_at: float | None = None  # to save its state and leave
    is_for_rest: bool = False  # asked to leave when all was saved, whatever comes after
    run_end: RunEnded | None = None
    failures: list[RankFailure] = []

    @model_validator(mode="after")
    def _know_the_agent_of_each_rank(self) -> Allocation:
        # Databases from before gangs could span agents name only one.
        if self.agent_id is not None and not self.agent_ids:
            self.agent_ids = [self.agent_id] * len(self.slots)
        return self

    @property
    def holds_slots(self) -> bool:
        """Whether slots are taken for it."""
        return self.state not in (AllocationState.QUEUED, AllocationState.ENDED)


class Trial(StoredTrial):
    """One sample of hyperparameters being trained.

    `is_resting` also while it has no target yet.
    """

    target_is_last: bool = False
    warm_start: CheckpointRef | None = None  # whose weights its first run begins with
    exit_reason: ExitReason | None = None
    runs: int = 0
    losses: int = 0  # of runs in a row that were lost before their first step
    allocation: Allocation | None = None
    latest_checkpoint: CheckpointRef | None = None
    checkpoints: list[str] = []  # uuids, oldest first
    metrics_by_step: dict[int, float] = {}  # of the searcher's metric
    message: str = ""
    divergences: dict[str, Divergence] = {}  # by group and metric, those of now, oldest first
    waiting_for: str | None = None  # why it rests; why it queues: views/wait_reasons.py
    avoids: list[str] = []  # agents that it shall not run on
    story: list[str] = []  # its last events, for errors

    @property
    def holds_slots(self) -> bool:
        """Whether ranks of it may live."""
        return self.allocation is not None and self.allocation.holds_slots

    @property
    def divergence(self) -> Divergence | None:
        """The first metric that became NaN or infinite and still is."""
        return next(iter(self.divergences.values()), None)


class Experiment(StoredExperiment):
    """A configuration and its trials."""

    origins: dict[str, str] = {}  # of the values in the configuration, by path
    searcher: dict[str, Any] | None = None  # snapshot of the search; None: not started, or over
    search_view: SearchView | None = None
    search_progress: float = 0.0
    warm_start: CheckpointRef | None = None  # whose weights its trials begin with
    continues: int | None = None  # the trial whose training it goes on with
    is_quiet: bool = False  # its end is not notified: what submitted it reports
    key: str = ""  # of the client that submitted it
    position: float = 0.0  # its place among those of its priority: its number, unless moved
    trial_ids: list[int] = []
    best_metric: float | None = None
    num_set_aside: int = 0  # news of it that could not be handled (giving_up.py)
    set_aside: str = ""  # the first of it
    is_given_up: bool = False  # because of such news

    @cached_property
    def settings(self) -> ExperimentConfig:
        """The configuration, parsed.

        Raises:
            ConfigError: It is of another version of det_jupyter, and cannot be parsed any more.
        """
        return parse_config(self.config)

    def reconfigure(self, config: dict[str, Any], origins: Iterable[str] = ()) -> None:
        """Replace the configuration.

        Args:
            config: The effective one from now on.
            origins: The paths of the values that the user has just given.
        """
        self.config = config
        self.origins |= dict.fromkeys(origins, "you")
        self.__dict__.pop("settings", None)

    def change_section(self, section: str, changed: dict[str, Any]) -> None:
        """Replace values of a section of the configuration, as the user has just given them."""
        config = self.config | {section: self.config[section] | changed}
        self.reconfigure(config, [f"{section}.{key}" for key in changed])

    # What is shown and placed of every experiment must not fail, whatever version stored it.

    @property
    def name(self) -> str:
        """The experiment's title."""
        return str(self.config["name"])

    @property
    def slots_per_trial(self) -> int:
        """How many slots each of its trials needs."""
        return int(self.config["resources"]["slots_per_trial"])

    @property
    def is_single_agent(self) -> bool:
        """Whether a trial must have all its slots on one agent."""
        return bool(self.config["resources"].get("is_single_node"))


class Agent(Wire):
    """One computer's slots."""

    id: str
    session: str
    hostname: str
    pid: int
    birth: str = ""
    slots: list[SlotView]
    is_away: bool = False  # does not listen; what runs there goes on
    problem: str = ""  # why it does not, and what can be done
    disabled: list[int] = []  # slots that are given out no more, by hand
    occupied: dict[int, list[DeviceProcess]] = {}  # by slot: strangers on its device


class MachineState(Wire):
    """Everything."""

    seq: int = 0  # how many events were handled
    last_experiment_id: int = 0
    last_trial_id: int = 0
    experiments: dict[int, Experiment] = {}
    trials: dict[int, Trial] = {}
    agents: dict[str, Agent] = {}
    lost_agents: dict[str, Agent] = {}  # that were here, and may come back
    checkpoints: dict[str, CheckpointView] = {}
    pools: list[dict[str, Any]] = []  # as in the file; the default one exists anyway
    disabled: dict[str, list[int]] = {}  # slots by agent, whether it is there now or not

    def experiment(self, experiment_id: int) -> Experiment:
        """Return an experiment.

        Raises:
            NotFound: There is none of that number.
        """
        experiment = self.experiments.get(experiment_id)
        if experiment is None:
            raise NotFound(f"there is no experiment {experiment_id}; `list` shows those that are")
        return experiment

    def trial(self, trial_id: int) -> Trial:
        """Return a trial.

        Raises:
            NotFound: There is none of that number.
        """
        trial = self.trials.get(trial_id)
        if trial is None:
            raise NotFound(f"there is no trial {trial_id}")
        return trial

    def living_experiments(self) -> list[Experiment]:
        """Return the experiments that are not over."""
        return [each for each in self.experiments.values() if not each.state.is_terminal]

    def trials_of(self, experiment: Experiment) -> list[Trial]:
        """Return an experiment's trials, in the order of their making."""
        return [self.trials[trial_id] for trial_id in experiment.trial_ids]

    def trial_at(self, experiment: Experiment, index: int) -> Trial:
        """Return an experiment's trial by its place."""
        return self.trials[experiment.trial_ids[index]]

    def find_allocation(self, allocation_id: str) -> tuple[Trial, Allocation] | None:
        """Return the allocation of that name with its trial, if it holds slots now."""
        trial = self._find_trial_of(allocation_id)
        if trial is None or trial.allocation is None or not trial.allocation.holds_slots:
            return None
        return trial, trial.allocation

    def trial_of(self, allocation_id: str) -> Trial:
        """Return the trial whose allocation this is now; there must be one."""
        trial = self._find_trial_of(allocation_id)
        assert trial is not None, allocation_id
        return trial

    def _find_trial_of(self, allocation_id: str) -> Trial | None:
        match allocation_id.split("."):
            case [_, trial_id, _] if trial_id.isdecimal() and len(trial_id) < _DIGITS:
                trial = self.trials.get(int(trial_id))
            case _:
                return None
        if trial is None or trial.allocation is None or trial.allocation.id != allocation_id:
            return None
        return trial

    @cached_property
    def pool_configs(self) -> dict[str, PoolConfig]:
        """The pools by name, the default one among them."""
        return {pool.pool_name: pool for pool in parse_pools({"pools": self.pools}).pools}

    def set_pools(self, pools: list[dict[str, Any]]) -> None:
        """Replace the pools."""
        self.pools = pools
        self.__dict__.pop("pool_configs", None)

    def pool_of(self, experiment: Experiment) -> str:
        """Return the pool whose slots an experiment gets; the default one if its own is gone."""
        return experiment.pool if experiment.pool in self.pool_configs else DEFAULT_POOL

    def pool_of_agent(self, agent_id: str) -> str:
        """Return the pool that an agent belongs to."""
        named = (name for name, config in self.pool_configs.items() if config.has(agent_id))
        return next(named, DEFAULT_POOL)

    def agents_of(self, pool: str) -> list[Agent]:
        """Return the agents of a pool."""
        return [each for each in self.agents.values() if self.pool_of_agent(each.id) == pool]
