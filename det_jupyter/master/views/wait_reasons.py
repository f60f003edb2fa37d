"""Reasons why a trial does not run, in each of its states. Pure.

waits for slots     computed by scheduler/reasons/, from the facts that are collected here
waits for room      a disk is full; stored in the trial (rules/full_disks.py)
starts, leaves      the state itself
rests               the search has not promoted it; searching.py has stored the reason
is paused or over   the state itself, and requests that would change it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from types import MappingProxyType

from det_jupyter.contract.messages import AllocationState, Estimate, Reason, Remedy, State
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.leaving_words import end_now, leaving_sentence
from det_jupyter.contract.values.text import count, short_time
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.queue import agent_slots
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.views.experiment_views import TrialProgress
from det_jupyter.master.views.leaving_gangs import leaving_of
from det_jupyter.scheduler.board import SlotBoard
from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.reasons import PoolSurvey, Title, Withheld, why_waiting
from det_jupyter.scheduler.reasons.estimate import estimate_end
from det_jupyter.scheduler.snapshot import Snapshot

_QUEUED = "waits for its turn"


class WaitReasons:
    """The reasons why trials do not run, at one time; valid until the machine changes.

    Args:
        most: Number of waiting trials for which `sentence` computes a reason; each takes time.
        zone: Time zone of times in sentences; None means that of this computer.
        own_user: The name of the user, whose processes the remedies may end.
        cluster_notes: By cluster, a sentence on why it provides no more slots.
        known: Reasons by trial that were computed before; new ones are added.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        progress: TrialProgress,
        now: float,
        most: int,
        zone: tzinfo | None = None,
        own_user: str = "",
        cluster_notes: Mapping[str, str] = MappingProxyType({}),
        known: dict[int, Reason] | None = None,
    ) -> None:
        self._machine = machine
        self.progress = progress
        self.now = now
        self._num_left = most
        self._zone = zone
        self._own_user = own_user
        self._cluster_notes = cluster_notes
        self._known: dict[int, Reason] = {} if known is None else known
        self._surveys: dict[str, PoolSurvey] = {}  # by pool

    def sentence(self, trial: Trial) -> str | None:
        """Return why a trial does not run, in a sentence; None if it runs, starts or is over."""
        allocation = trial.allocation
        if allocation is None or allocation.state is AllocationState.ENDED:
            return trial.room.sentence if trial.room is not None else trial.waiting_for
        if allocation.state is not AllocationState.QUEUED:
            return self._holder_sentence(trial, allocation)
        if self._num_left == 0:
            return _QUEUED
        self._num_left -= 1
        return self.of(trial).sentence

    def of(self, trial: Trial) -> Reason:
        """Return why a trial does not run."""
        if trial.id not in self._known:
            self._known[trial.id] = self._make(trial)
        return self._known[trial.id]

    def _make(self, trial: Trial) -> Reason:
        allocation = trial.allocation
        if trial.state.is_terminal:
            why = f": {trial.message}" if trial.message else ""
            return _reason(trial, "over", f"is over ({trial.state.lower()}){why}")
        if allocation is None or allocation.state is AllocationState.ENDED:
            if trial.state is not State.ACTIVE:
                return _paused(trial)
            if trial.room is not None:
                return _reason(trial, "room", trial.room.sentence)
            why = trial.waiting_for or "rests until its search says how far"
            return _reason(trial, "resting", why)
        if problem := self._problem_of(trial, allocation):
            is_leaving = allocation.state is AllocationState.STOPPING
            return _reason(trial, "leaving" if is_leaving else "running", problem)
        is_running = allocation.state is AllocationState.RUNNING
        if allocation.hang is not None and is_running and trial.room is None:
            return _reason(trial, "hangs", allocation.hang.sentence(self.now), *_after_hang(trial))
        match allocation.state:
            case AllocationState.QUEUED:
                return self._waiting(trial, allocation)
            case AllocationState.STARTING:
                where = " and ".join(dict.fromkeys(allocation.agent_ids))
                return _reason(trial, "starting", f"its ranks are starting on {where}")
            case AllocationState.STOPPING:
                leaving = self._leaving(trial)
                sentence = leaving_sentence(leaving, self.now, self._zone)
                return _reason(trial, "leaving", sentence, *end_now(leaving))
            case _ if trial.room is not None:
                return _reason(trial, "room", trial.room.sentence)
            case _:
                return _reason(trial, "running", "runs")

    def _holder_sentence(self, trial: Trial, allocation: Allocation) -> str | None:
        """Return a sentence about a trial that holds slots; None if it runs without problems.

        The sentence is about a problem of its agent, its end, or what the trial itself waits for.
        """
        if problem := self._problem_of(trial, allocation):
            return problem
        goes_to_rest = trial.state is State.ACTIVE and trial.is_resting
        if allocation.state is AllocationState.STOPPING and not goes_to_rest:
            return leaving_sentence(self._leaving(trial), self.now, self._zone)
        return trial.room.sentence if trial.room is not None else trial.waiting_for

    def _problem_of(self, trial: Trial, allocation: Allocation) -> str:
        """Return the problem of an agent of a gang, and its effect if the gang is leaving."""
        if allocation.state is AllocationState.STOPPING:
            leaving = self._leaving(trial)
            if leaving.unreached:
                return leaving_sentence(leaving, self.now, self._zone)
        agents = self._machine.state.agents
        held = (agents.get(agent_id) for agent_id in dict.fromkeys(allocation.agent_ids))
        return next((agent.problem for agent in held if agent and agent.problem), "")

    def _leaving(self, trial: Trial) -> Leaving:
        steps_completed = self.progress.get(trial.id, (0, 0.0))[0]
        found = leaving_of(self._machine.state, trial, steps_completed)
        assert found is not None, "its gang was asked to leave"
        return found

    def _waiting(self, trial: Trial, allocation: Allocation) -> Reason:
        state = self._machine.state
        name = state.pool_of(state.experiments[trial.experiment_id])
        snapshot = self._machine.queue.snapshot(name)
        if name not in self._surveys:
            self._surveys[name] = PoolSurvey(_without_cuts(snapshot), self._facts(name))
        survey = self._surveys[name]
        shape = snapshot.waiting[allocation.id].shape
        if survey.board.spans(shape) and (cuts := self._cuts_in(name)):
            if survey.board.find_parts(shape, ()) and not SlotBoard(snapshot).find_parts(
                shape, ()
            ):
                needs = f"needs {count(shape.slots, 'slot')} of computers that reach each other"
                return _reason(trial, "cut", "; ".join([needs, *cuts]))
            reason = why_waiting(survey, allocation.id)
            sentence = "; ".join([reason.sentence, *cuts])
            reason = reason.model_copy(update={"sentence": sentence})
        else:
            reason = why_waiting(survey, allocation.id)
        lost = (a for a in state.lost_agents.values() if state.pool_of_agent(a.id) == name)
        agents = [*state.agents_of(name), *lost]
        problems = list(dict.fromkeys(agent.problem for agent in agents if agent.problem))
        problems += [
            note
            for cluster, note in self._cluster_notes.items()
            if note and note not in problems and state.pool_of_cluster(cluster) == name
        ]
        if not problems:
            return reason
        sentence = "; ".join([reason.sentence, *problems])
        return reason.model_copy(update={"sentence": sentence})

    def _cuts_in(self, pool: str) -> list[str]:
        """Return a sentence for each two agents of a pool that cannot reach each other."""
        state = self._machine.state
        return [
            f"since {short_time(cut.since, self.now, self._zone)} {cut.sentence}"
            for cut in state.cuts
            if all(state.pool_of_agent(name) == pool for name in cut.pair)
        ]

    def _facts(self, pool: str) -> _Facts:
        return _Facts(
            machine=self._machine,
            progress=self.progress,
            now=self.now,
            zone=self._zone,
            pool_name=pool,
            own_user=self._own_user,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts about a pool that its snapshot does not have (see scheduler/reasons)."""

    machine: Machine
    progress: TrialProgress
    now: float
    zone: tzinfo | None
    pool_name: str
    own_user: str

    def trial_of(self, request_id: str) -> int:
        return self.machine.state.trial_of(request_id).id

    def title_of(self, experiment_id: int) -> Title:
        experiment = self.machine.state.experiments[experiment_id]
        return Title(experiment.name, experiment.notebook)

    def end_of(self, request_id: str) -> Estimate | None:
        """Estimate when a gang releases its slots, from its trial's progress."""
        trial = self.machine.state.trial_of(request_id)
        allocation = trial.allocation
        if allocation is None or allocation.first_step_at is None:
            return None
        steps, fraction = self.progress.get(trial.id, (0, 0.0))
        before = allocation.starts_from.steps_completed if allocation.starts_from else 0
        search = self.machine.state.experiments[trial.experiment_id].search_view
        return estimate_end(
            self.now - allocation.first_step_at,
            fraction,
            now=self.now,
            first_fraction=fraction * before / steps if steps else 0.0,
            may_stop_early=search is not None and bool(search.brackets),
            basis=f"by the progress of trial {trial.id}",
        )

    def leaves_by(self, request_id: str) -> float | None:
        """Return the deadline of a gang that was asked to leave, in UTC seconds."""
        trial = self.machine.state.trial_of(request_id)
        if trial.allocation is None or trial.allocation.asked_at is None:
            return None
        experiment = self.machine.state.experiments[trial.experiment_id]
        return trial.allocation.asked_at + experiment.preemption_timeout

    def may_ask_again(self, experiment_id: int) -> bool:
        """Return whether an experiment's search may still create or promote trials."""
        experiment = self.machine.state.experiments[experiment_id]
        search = experiment.search_view
        if experiment.state is not State.ACTIVE or search is None:
            return False
        return bool(search.brackets) or search.num_created < search.max_trials

    def queues_again(self, request_id: str) -> bool:
        """Return whether the trial of a leaving gang will queue again."""
        trial = self.machine.state.trial_of(request_id)
        return trial.state is State.ACTIVE and not trial.is_resting

    def other_pools(self) -> Mapping[str, Snapshot]:
        names = (name for name in self.machine.state.pool_configs if name != self.pool_name)
        return {name: self.machine.queue.snapshot(name) for name in names}

    def withheld(self) -> Mapping[str, Withheld]:
        state = self.machine.state
        shares = state.pool_configs[self.pool_name].share_devices
        return {
            agent.id: Withheld(
                disabled=tuple(agent.disabled),
                occupied=agent.used_by_others(shares_devices=shares),
                lost=agent.lost,
                # An agent elsewhere is named by its id, as its computer may have the name of this
                # one.
                host=agent.id if agent.is_remote else agent.hostname,
            )
            for agent in state.agents_of(self.pool_name)
            if agent.disabled or agent.occupied or agent.lost
        }

    def gone(self) -> Sequence[AgentSlots]:
        state = self.machine.state
        config = state.pool_configs[self.pool_name]
        return [
            agent_slots(agent.former, config)
            for agent in state.gone_agents
            if state.pool_of_agent(agent.id) == self.pool_name and agent.former.slots
        ]

    def left_at(self, agent_id: str) -> float | None:
        state = self.machine.state
        agent = state.lost_agents.get(agent_id) or state.agents[agent_id]
        is_away_only = agent_id in state.agents and bool(agent.slots)
        return agent.left_at if agent.is_remote and not is_away_only else None


def _without_cuts(snapshot: Snapshot) -> Snapshot:
    """Return a pool as it would be if all of its agents could reach each other."""
    if not any(agent.cut_from for agent in snapshot.agents.values()):
        return snapshot
    agents = {
        name: replace(agent, cut_from=frozenset()) for name, agent in snapshot.agents.items()
    }
    return replace(snapshot, agents=agents)


def _reason(trial: Trial, cause: str, sentence: str, *remedies: Remedy) -> Reason:
    return Reason.model_validate(
        {"trial_id": trial.id, "cause": cause, "sentence": sentence, "remedies": list(remedies)}
    )


def _after_hang(trial: Trial) -> list[Remedy]:
    """Return the remedy for a hang: kill the experiment, which can be continued."""
    target: list[int | str] = [trial.experiment_id]
    if trial.latest_checkpoint is None:
        text = "kill its experiment: it has no checkpoint yet"
        return [Remedy(verb="kill", target=target, text=text)]
    text = "kill its experiment and continue it: it trains on from its latest checkpoint"
    return [Remedy(verb="kill_and_continue", target=target, text=text)]


def _paused(trial: Trial) -> Reason:
    remedy = Remedy(
        verb="activate",
        target=[trial.experiment_id],
        text="activate its experiment; then it waits for its turn",
    )
    return _reason(trial, "paused", "is paused until its experiment is activated", remedy)
