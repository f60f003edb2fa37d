"""What a gang is told: the plan made from an experiment, a trial and its allocation."""

from __future__ import annotations

from det_jupyter.master.machine.core.state import Allocation, Experiment, Trial
from det_jupyter.wire import GangPlan


def make_plan(experiment: Experiment, trial: Trial, allocation: Allocation) -> GangPlan:
    """Return the plan of a run; made again later, it may tell of a farther target."""
    return GangPlan(
        allocation_id=allocation.id,
        experiment_id=experiment.id,
        trial_id=trial.id,
        run=allocation.run,
        python=experiment.python,
        cwd=experiment.cwd,
        slots=allocation.slots,
        agent_ids=allocation.agent_ids,
        config=experiment.config,
        hparams=trial.hparams,
        seed=trial.seed,
        capsule=experiment.capsule,
        checkpoint=allocation.starts_from,
        warm_start=trial.warm_start,
        best_metric=experiment.best_metric,
        target=trial.target,
        target_is_last=trial.target_is_last,
    )
