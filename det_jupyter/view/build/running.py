"""Makes the lines of the Running panel: trials that hold slots, and their ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from det_jupyter.view.build.facts import fraction, slot_label, status_word, trial_status
from det_jupyter.view.model.experiment import Status
from det_jupyter.view.model.sidebar import RankLine, TrialLine, TrialNews
from det_jupyter.wire import AllocationView, ExperimentRow, RankView, State, TrialView
from det_jupyter.words import shortened


def build_trials(
    trials: Sequence[TrialView], experiments: Mapping[int, ExperimentRow]
) -> TrialNews:
    """Return the lines of trials that hold slots."""
    return TrialNews(trials=[_trial(trial, experiments.get(trial.experiment_id))
                             for trial in trials])  # fmt: skip


def _trial(trial: TrialView, experiment: ExperimentRow | None) -> TrialLine:
    state = State.ACTIVE if experiment is None else experiment.state
    status = trial_status(trial, state)
    run = trial.allocation
    return TrialLine(
        id=trial.id,
        experiment_id=trial.experiment_id,
        experiment="" if experiment is None else shortened(experiment.name),
        status=status,
        status_word=status_word(trial, status),
        steps_completed=trial.steps_completed,
        progress=fraction(trial.progress),
        ranks=[] if run is None else [_rank(rank, run, status) for rank in run.ranks],
    )


def _rank(rank: RankView, run: AllocationView, trial_status: Status) -> RankLine:
    is_up = bool(rank.device)
    agent_id = run.agent_ids[rank.rank] if rank.rank < len(run.agent_ids) else run.agent_id
    return RankLine(
        rank=rank.rank,
        pid=rank.pid,
        agent_id=agent_id or "",
        slot=slot_label(rank.slot),
        device=rank.device,
        status=trial_status if is_up or trial_status != "running" else "starting",
        has_kernel=is_up and bool(rank.connection_file),
    )
