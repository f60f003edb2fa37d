"""A copy of one experiment, updated by the items of the master's feed. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from det_jupyter.contract.messages import (
    CheckpointView,
    ClusterView,
    Curve,
    Curves,
    ExperimentView,
    FeedItem,
    Reason,
    TrialView,
)


class LiveExperiment:
    """Experiment, trials, curves and checkpoints, as of feed item `seq`.

    Items up to that number are ignored, so that none is applied twice. `cluster` contains all
    slots and the front of the queue; `reasons` are those for which trials of the experiment wait,
    by trial, the next to start first. The feed has no data of these; `set_cluster` replaces them.
    """

    def __init__(
        self,
        experiment: ExperimentView,
        curves: Iterable[Curve],
        checkpoints: Iterable[CheckpointView],
        seq: int,
    ) -> None:
        self.experiment = experiment
        self.curves = Curves.of(curves)
        self.checkpoints = {c.uuid: c for c in checkpoints}
        self.seq = seq
        self.cluster: ClusterView | None = None
        self.reasons: dict[int, Reason] = {}

    def set_cluster(self, cluster: ClusterView) -> None:
        """Replace `cluster` and `reasons`."""
        self.cluster = cluster
        self.reasons = cluster.reasons_of(self.experiment.id)

    def apply(self, item: FeedItem) -> None:
        """Apply an item of the feed; ignore it if it was applied before."""
        if item.seq <= self.seq:
            return
        self.seq = item.seq
        match item.kind:
            case "experiment":
                trials = self.experiment.trials
                before = dict(self.experiment)  # an item omits large fields that do not change
                self.experiment = ExperimentView.model_validate(before | item.data)
                self.experiment.trials = trials
            case "trial":
                self._replace_trial(item.trial_id or 0, item.data)
            case "checkpoint":
                checkpoint = CheckpointView.model_validate(item.data)
                self.checkpoints[checkpoint.uuid] = checkpoint
            case "metrics":
                self.curves.add(item.trial_id or 0, item.data)
            case "truncated":
                self.curves.truncate(item.trial_id or 0, int(item.data["steps_completed"]))

    def _replace_trial(self, trial_id: int, data: dict[str, Any]) -> None:
        trials = self.experiment.trials
        place = bisect_left(trials, trial_id, key=lambda t: t.id)
        is_known = place < len(trials) and trials[place].id == trial_id
        trial = TrialView.model_validate((dict(trials[place]) if is_known else {}) | data)
        # A new list, as another thread may read the old one.
        self.experiment.trials = [*trials[:place], trial, *trials[place + is_known :]]
