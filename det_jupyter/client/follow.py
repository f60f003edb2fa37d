"""Following an experiment: a copy of what the master has, kept current from its numbered feed.

LiveExperiment   the copy: experiment, trials, curves, checkpoints; `apply` takes one feed item
follow           the thread's loop: fetch once, then apply items, reconnecting from the last number
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.errors import MasterUnreachable
from det_jupyter.records import to_finite
from det_jupyter.wire import CheckpointView, Curve, ExperimentView, FeedItem, TrialView

logger = logging.getLogger(__name__)

CurveKey = tuple[int, str, str]  # trial, group, metric
BATCHES = "batches"  # the group of per-batch training metrics


class LiveExperiment:
    """A copy of one experiment. Items older than the copy are ignored, so none counts twice."""

    def __init__(
        self,
        experiment: ExperimentView,
        curves: Iterable[Curve],
        checkpoints: Iterable[CheckpointView],
        seq: int,
    ) -> None:
        self.experiment = experiment
        self.curves: dict[CurveKey, Curve] = {(c.trial_id, c.group, c.name): c for c in curves}
        self.checkpoints = {c.uuid: c for c in checkpoints}
        self.seq = seq
        self.lock = threading.Lock()  # held while the copy changes: hold it to read several parts

    def apply(self, item: FeedItem) -> None:
        """Bring the copy forward by one item."""
        with self.lock:
            if item.seq > self.seq:
                self.seq = item.seq
                self._apply(item)

    def _apply(self, item: FeedItem) -> None:
        match item.kind:
            case "experiment":
                trials = self.experiment.trials
                self.experiment = ExperimentView.model_validate(item.data)
                self.experiment.trials = trials
            case "trial":
                self._replace_trial(TrialView.model_validate(item.data))
            case "checkpoint":
                checkpoint = CheckpointView.model_validate(item.data)
                self.checkpoints[checkpoint.uuid] = checkpoint
            case "metrics":
                self._add_metrics(item.trial_id or 0, item.data)
            case "truncated":
                self._truncate(item.trial_id or 0, int(item.data["steps_completed"]))

    def _replace_trial(self, trial: TrialView) -> None:
        trials = self.experiment.trials
        place = bisect_left(trials, trial.id, key=lambda t: t.id)
        is_known = place < len(trials) and trials[place].id == trial.id
        # A new list, so that whoever reads the old one meanwhile reads it whole.
        self.experiment.trials = [*trials[:place], trial, *trials[place + is_known :]]

    def _add_metrics(self, trial_id: int, record: dict[str, Any]) -> None:
        if record["kind"] == "batch_metrics":
            for name, values in record["values"].items():
                for step, value in enumerate(values, start=record["first"]):
                    self._add_point(trial_id, BATCHES, name, step, value)
        else:
            for name, value in record["metrics"].items():
                self._add_point(trial_id, record["group"], name, record["steps_completed"], value)

    def _add_point(self, trial_id: int, group: str, name: str, step: int, value: Any) -> None:
        key = (trial_id, group, name)
        if key not in self.curves:
            self.curves[key] = Curve(
                trial_id=trial_id, group=group, name=name, steps=[], values=[]
            )
        curve = self.curves[key]
        if curve.steps and step <= curve.steps[-1]:
            # It was fetched with the curve, after the number the copy began with; or the next run
            # did anew a validation that was due at its checkpoint.
            return
        curve.steps.append(step)
        curve.values.append(to_finite(value))

    def _truncate(self, trial_id: int, steps_completed: int) -> None:
        for curve in self.curves.values():
            if curve.trial_id == trial_id:
                kept = [i for i, step in enumerate(curve.steps) if step <= steps_completed]
                curve.steps = [curve.steps[i] for i in kept]
                curve.values = [curve.values[i] for i in kept]


def fetch(client: Client, experiment_id: int) -> LiveExperiment:
    """Return a copy of the experiment as it is now."""
    # The number is read first: what happens while the rest is fetched comes once more as an item.
    experiment = client.experiment(experiment_id)
    seq = experiment.last_seq
    return LiveExperiment(
        experiment, client.curves(experiment_id), client.checkpoints(experiment_id), seq
    )


class Follower:
    """A thread that keeps a copy of one experiment current until it is terminal.

    Survives restarts of the master: it fetches the copy anew and follows on from there.

    Args:
        on_change: Called in that thread with the copy, at first and after every item.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: int,
        on_change: Callable[[LiveExperiment], None] = lambda live: None,
    ) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._on_change = on_change
        self._stopped = threading.Event()
        self.live: LiveExperiment | None = None
        self.error: Exception | None = None  # why it ended before its time
        self.thread = threading.Thread(
            target=self._run, name=f"det-follow-{experiment_id}", daemon=True
        )

    def start(self) -> Follower:
        """Start the thread."""
        self.thread.start()
        return self

    def stop(self) -> None:
        """Let the thread end, at the next item or heartbeat; safe to call twice."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    return self._follow_from(fetch(self._client, self._experiment_id))
                except MasterUnreachable:
                    self._stopped.wait(0.5)  # it is being restarted; its successor has everything
        except Exception as error:  # the thread's boundary: whoever waits for it has to know
            logger.debug("following experiment %s", self._experiment_id, exc_info=True)
            self.error = error

    def _follow_from(self, live: LiveExperiment) -> None:
        self._show(live)
        if live.experiment.state.is_terminal:
            return
        with closing(self._client.feed(self._experiment_id, after=live.seq)) as feed:
            for item in feed:
                if self._stopped.is_set():
                    return
                if item is not None:
                    live.apply(item)
                    self._show(live)
                    if live.experiment.state.is_terminal:
                        break
            else:
                raise MasterUnreachable("the feed ended")
        # Once more from the source, so that nothing of the end is missing.
        self._show(fetch(self._client, self._experiment_id))

    def _show(self, live: LiveExperiment) -> None:
        self.live = live
        self._on_change(live)
