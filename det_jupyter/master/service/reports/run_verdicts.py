"""Computes a verdict (what limits the speed) on each run that trains, and publishes changes.

The recent intervals are kept in memory. After a restart of the master a verdict is computed from
later intervals, and until then the stored one stays. If a rule raises, the error is logged and the
run gets no further verdicts; its reports are still stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from det_jupyter.contract.messages import SystemSample, Verdict
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.contract.values.lengths import Length
from det_jupyter.diagnosis import RankSite, RunVerdict, Setting
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Agent, MachineState, Trial
from det_jupyter.master.service.committing.transaction import Transaction

logger = logging.getLogger(__name__)

EVERY_S = 2.0  # shortest time between two verdicts on a run


@dataclass(slots=True)
class _Run:
    trial_id: int
    current: RunVerdict
    judged_at: float = 0.0
    has_new_intervals: bool = False
    has_failed: bool = False

    @property
    def is_known(self) -> bool:
        """Whether there is a verdict other than unknown."""
        verdict = self.current.verdict
        return verdict is not None and verdict.kind != "unknown"


class RunVerdicts:
    """The verdicts on all runs that report times of their parts."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._unsaved: dict[int, Verdict] = {}  # by trial, until the transaction is committed

    def add_times(
        self, transaction: Transaction, allocation_id: str, rank: int, times: StepTimes
    ) -> None:
        run = self._runs.get(allocation_id)
        if run is None:
            found = transaction.machine.state.find_allocation(allocation_id)
            if found is None:
                return
            trial, allocation = found
            setting = setting_of(transaction.machine.state, trial.experiment_id, allocation)
            last = transaction.store.verdict(trial.id)
            run = self._runs[allocation_id] = _Run(trial.id, RunVerdict(setting, last))
        with _logging_errors(run):
            run.has_new_intervals |= run.current.add_times(rank, times)

    def add_samples(self, agent_id: str, samples: Iterable[SystemSample]) -> None:
        runs = [
            run
            for run in self._runs.values()
            if not run.has_failed and agent_id in run.current.setting.agents()
        ]
        for run in runs:
            with _logging_errors(run):
                for sample in samples:
                    run.current.add_sample(agent_id, sample)

    def publish(self, transaction: Transaction) -> None:
        """Compute verdicts on runs with new intervals, and publish those that have changed."""
        for allocation_id, run in list(self._runs.items()):
            found = transaction.machine.state.find_allocation(allocation_id)
            is_due = not run.is_known or abs(transaction.now - run.judged_at) >= EVERY_S
            if not run.has_failed and (found is None or (run.has_new_intervals and is_due)):
                with _logging_errors(run):
                    self._judge(transaction, run, found)
            if found is None:
                del self._runs[allocation_id]
        for trial_id, verdict in self._unsaved.items():
            if trial_id in transaction.machine.state.trials:
                transaction.progress.set_verdict(trial_id, verdict)

    def committed(self) -> None:
        """Record that the published verdicts are stored. Called after the commit."""
        self._unsaved.clear()

    def _judge(
        self, transaction: Transaction, run: _Run, found: tuple[Trial, Allocation] | None
    ) -> None:
        run.has_new_intervals, run.judged_at = False, transaction.now
        if found is not None:
            trial, allocation = found
            state = transaction.machine.state
            run.current.setting = setting_of(state, trial.experiment_id, allocation)
        verdict = run.current.judge(transaction.now, is_last=found is None)
        if verdict is not None:
            self._unsaved[run.trial_id] = verdict


@contextmanager
def _logging_errors(run: _Run) -> Iterator[None]:
    """Log an exception, after which the run gets no further verdicts."""
    try:
        yield
    except Exception:  # a mistake in verdicts must not fail a report
        logger.exception("trial=%d cannot be judged", run.trial_id)
        run.has_failed = True


def setting_of(state: MachineState, experiment_id: int, allocation: Allocation) -> Setting:
    """Return the setting of a run: the agents of its ranks, and its configuration."""
    config = state.experiments[experiment_id].settings
    optimizations = config.optimizations
    return Setting(
        allocation_id=allocation.id,
        places=tuple(
            _rank_site(state.agents.get(agent_id), agent_id, allocation, rank)
            for rank, agent_id in enumerate(allocation.agent_ids)
        ),
        interfaces={
            allocation.agent_ids[rank]: part.interface
            for part in allocation.parts
            for rank in part.ranks
            if part.interface
        },
        aggregation_frequency=optimizations.aggregation_frequency,
        gradient_compression=bool(optimizations.gradient_compression),
        mixed_precision=optimizations.mixed_precision != "O0",
        average_training_metrics=optimizations.average_training_metrics,
        is_compiled=bool(optimizations.compile),
        has_tuned_fusion=optimizations.auto_tune_tensor_fusion
        or optimizations.tensor_fusion_threshold is not None,
        min_checkpoint_period=_period(config.min_checkpoint_period),
        min_validation_period=_period(config.min_validation_period),
        checkpoint_policy=config.checkpoint_policy,
    )


def _rank_site(agent: Agent | None, agent_id: str, allocation: Allocation, rank: int) -> RankSite:
    slot = allocation.slots[rank]
    occupied = () if agent is None else agent.occupied.get(slot.id, ())
    return RankSite(
        agent_id=agent_id,
        gpu=slot.uuid,
        kind=slot.name,
        other_processes=tuple(process.command for process in occupied),
    )


def _period(length: Length) -> str:
    return str(length) if length.amount else ""
