"""Makes views of the current state, for the routes that request them, and for the reader."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType

import psutil

from det_jupyter.contract.messages import (
    AgentStatus,
    ClusterView,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    ModelView,
    PoolStatus,
    Reason,
    TrialView,
)
from det_jupyter.contract.values.text import by_name
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.service.storing.progress import ProgressCache
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.views.experiment_views import (
    TrialProgress,
    experiment_view,
    trial_view,
)
from det_jupyter.master.views.found_experiments import find_experiments
from det_jupyter.master.views.model_views import model_view
from det_jupyter.master.views.pool_views import (
    agent_status,
    cluster_view,
    pool_statuses,
)
from det_jupyter.master.views.wait_reasons import WaitReasons

_USER = psutil.Process().username()
_FEW = 200  # for longer lists, or more trials, the progress of all trials is read at once
_EXPLAINED = 16  # most waiting trials with a reason of their own in an answer, as each takes time


class Views:
    """Makes views of the machine's state, and of stored progress and facts.

    Args:
        machine: Has the state.
        store: Has the rows.
        clock: Returns the present time, UTC seconds.
        has_link: Returns whether an agent has a link to the master now. The state shows about a
            second later that an agent is away; the reader uses only the state.
        recent_s: Seconds for which reasons are reused while there is no event: many documents show
            the same front of a queue, and each reason takes milliseconds.
    """

    def __init__(
        self,
        machine: Machine,
        store: Store,
        clock: Callable[[], float],
        has_link: Callable[[str], bool] = lambda agent_id: True,
        recent_s: float = 0.0,
    ) -> None:
        self._machine = machine
        self._store = store
        self._clock = clock
        self._has_link = has_link
        self._recent_s = recent_s
        self._recent: dict[int, Reason] = {}  # by trial; computed at the following event and time
        self._recent_seq, self._recent_at = -1, 0.0

    def experiment(
        self,
        experiment_id: int,
        *,
        known: Mapping[int, TrialView] = MappingProxyType({}),
        changed: Container[int] = (),
    ) -> ExperimentView:
        """Return an experiment with its trials.

        Args:
            experiment_id: Its number.
            known: Earlier views of trials, which are reused for trials that are over.
            changed: Trials whose views are not reused.
        """
        experiment = self._machine.state.experiment(experiment_id)
        is_small = len(experiment.trial_ids) <= _FEW or bool(known)
        progress = ProgressCache(self._store) if is_small else self._store.progress()
        reasons = self.reasons(_EXPLAINED, progress)
        return experiment_view(
            self._machine.state,
            progress,
            experiment,
            living=self._machine.indexes.unfinished_trials(experiment.id),
            sentence=reasons.sentence,
            verdict_of=self._store.verdict,
            trackers=self._store.tracked.states(experiment.id),
            known={
                number: view
                for number, view in known.items()
                if view.state.is_terminal and number not in changed
            },
        )

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        is_short = query.ids is not None or (query.limit is not None and query.limit <= _FEW)
        progress = ProgressCache(self._store) if is_short else self._store.progress()
        rows = find_experiments(self._machine.state, self._machine.indexes, progress, query)
        rows.disks = self._store.facts.get().disks
        return rows

    def models(self) -> list[ModelView]:
        """Return the models of the registry, oldest first."""
        state = self._machine.state
        return [model_view(state, model) for model in state.models.values()]

    def model(self, name: str) -> ModelView:
        state = self._machine.state
        return model_view(state, state.model(name))

    def trial(self, trial_id: int) -> TrialView:
        reasons = self.reasons(_EXPLAINED)
        state = self._machine.state
        trial = state.trial(trial_id)
        return trial_view(state, trial, reasons.progress, reasons.sentence, self._store.verdict)

    def holding(self) -> list[TrialView]:
        """Return the trials that hold slots, without their verdicts."""
        state, indexes = self._machine.state, self._machine.indexes
        numbers = {t.id for agent_id in state.agents for t in indexes.trials_on_agent(agent_id)}
        reasons = self.reasons(0)
        return [
            trial_view(state, trial, reasons.progress, reasons.sentence)
            for trial in map(state.trials.__getitem__, sorted(numbers))
        ]

    def reason(self, trial_id: int) -> Reason:
        """Return why a trial does not run, with remedies."""
        return self.reasons(1).of(self._machine.state.trial(trial_id))

    def reasons(self, most: int, progress: TrialProgress | None = None) -> WaitReasons:
        """Return the reasons of waiting trials; only the first `most` trials get their own."""
        seq, now = self._machine.state.seq, self._clock()
        if seq != self._recent_seq or not 0 <= now - self._recent_at < self._recent_s:
            self._recent, self._recent_seq, self._recent_at = {}, seq, now
        return WaitReasons(
            self._machine,
            progress=ProgressCache(self._store) if progress is None else progress,
            now=now,
            known=self._recent,
            own_user=_USER,
            most=most,
            cluster_notes=self._store.facts.get().cluster_notes,
        )

    def cluster(self, *, limit: int, experiment_id: int | None) -> ClusterView:
        reasons = self.reasons(0)
        view = cluster_view(
            self._machine,
            reasons.of,
            now=reasons.now,
            limit=limit,
            experiment_id=experiment_id,
        )
        view.disks = self._store.facts.get().disks
        self._note_links(agent for pool in view.pools for agent in pool.agents)
        return view

    def pools(self) -> list[PoolStatus]:
        pools = pool_statuses(self._machine)
        self._note_links(agent for pool in pools for agent in pool.agents)
        return pools

    def agent(self, agent_id: str) -> AgentStatus:
        """Return an agent with its slots and their holders."""
        status = agent_status(self._machine, self._machine.state.agents[agent_id])
        self._note_links([status])
        return status

    def agents(self) -> list[AgentStatus]:
        """Return the agents that have not exited, with their slots and their holders."""
        agents = self._machine.state.agents
        return [self.agent(agent_id) for agent_id in sorted(agents, key=by_name)]

    def _note_links(self, agents: Iterable[AgentStatus]) -> None:
        for agent in agents:
            agent.connected &= self._has_link(agent.id)
