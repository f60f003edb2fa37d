"""When unmanaged runs have last reported. Silence counts only while this process runs."""

from __future__ import annotations

from collections.abc import Iterator

from det_jupyter.contract.messages import UnmanagedStart
from det_jupyter.errors import NotFound
from det_jupyter.master.machine.machine import Machine, find_run
from det_jupyter.master.machine.model.events import UnmanagedHeard
from det_jupyter.master.machine.rules.placing import make_plan
from det_jupyter.master.service.agents.links import AgentLinks

SILENT_S = 60.0  # such a run reports at least every 3 s


class UnmanagedRuns:
    """The unmanaged runs of a machine that are not over; `links` measure time."""

    def __init__(self, machine: Machine, links: AgentLinks) -> None:
        self._machine = machine
        self._links = links
        self._heard_at: dict[str, float] = {}  # by allocation

    def started(self, key: str) -> UnmanagedStart:
        """Return the answer to the start of the run with this key, which was stored."""
        found = find_run(self._machine.state, key)
        assert found is not None
        experiment, allocation = found
        if allocation is None:
            is_cut = key in experiment.cut_keys
            return UnmanagedStart(experiment_id=experiment.id, plan=None, is_cut=is_cut)
        trial = self._machine.state.trial_of(allocation.id)
        plan = make_plan(experiment, trial, allocation)
        return UnmanagedStart(experiment_id=experiment.id, plan=plan)

    def hear(self, allocation_id: str) -> tuple[str, bool]:
        """Note that a run reports; return what stands for its agent, and whether it was silent.

        Raises:
            NotFound: It is over, or is not unmanaged.
        """
        state = self._machine.state
        found = state.find_allocation(allocation_id)
        if found is None or not state.experiment(found[0].experiment_id).is_unmanaged:
            raise NotFound(f"run {allocation_id} is over, or was not started by hand")
        self._heard_at[allocation_id] = self._links.running_s
        return found[1].agent_id or "", found[1].silent_since is not None

    def newly_silent(self, now: float) -> Iterator[UnmanagedHeard]:
        """Yield the event of each run that has become silent; `now` is in UTC seconds."""
        running_s, before = self._links.running_s, self._heard_at
        self._heard_at = {}
        for number in list(self._machine.queue.groups):
            if not self._machine.state.experiments[number].is_unmanaged:
                continue
            for trial in self._machine.indexes.unfinished_trials(number):
                if (run := trial.allocation) is None or not run.holds_slots:
                    continue
                heard_at = self._heard_at[run.id] = before.get(run.id, running_s)
                if running_s - heard_at > SILENT_S and run.silent_since is None:
                    since = now - (running_s - heard_at)
                    yield UnmanagedHeard(allocation_id=run.id, silent_since=since)
