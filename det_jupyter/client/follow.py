"""Following an experiment: a copy of what the master has, kept current from its numbered feed.

LiveExperiment   the copy: experiment, trials, curves, checkpoints; `apply` takes one feed item
Follower         the thread: fetch once, then apply items, reconnecting from the last number

Slots and queue are in the copy too. The feed says only that they have changed, so they are fetched
again after that, but a few times a second at most.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.records import to_finite
from det_jupyter.wire import (
    CheckpointView,
    ClusterView,
    Curve,
    ExperimentView,
    FeedItem,
    Reason,
    TrialView,
)

logger = logging.getLogger(__name__)

CurveKey = tuple[int, str, str]  # trial, group, metric
BATCHES = "batches"  # the group of per-batch training metrics
QUEUE_FRONT = 8  # entries of each pool's queue that are fetched, and of the experiment's own
_CLUSTER_PERIOD_S = 0.35
_CLUSTER_SHARE = 10  # of the time, fetching slots and queue may take one part in so many
_CLOCK_STEP_S = 5.0  # an item so much older than the copy comes after the clock was set back


class LiveExperiment:
    """A copy of one experiment. Items older than the copy are ignored, so none counts twice.

    `cluster` has all slots and the front of the queue, and `reasons` says why trials of the
    experiment wait, by trial, the next to start first. Nothing is known of either at first, nor
    once the experiment is over.
    """

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
        self.cluster: ClusterView | None = None
        self.reasons: dict[int, Reason] = {}
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
                known = dict(self.experiment)  # an item leaves out what is large and the same
                self.experiment = ExperimentView.model_validate(known | item.data)
                self.experiment.trials = trials
            case "trial":
                self._replace_trial(item.trial_id or 0, item.data)
            case "checkpoint":
                checkpoint = CheckpointView.model_validate(item.data)
                self.checkpoints[checkpoint.uuid] = checkpoint
            case "metrics":
                self._add_metrics(item.trial_id or 0, item.data)
            case "truncated":
                self._truncate(item.trial_id or 0, int(item.data["steps_completed"]))

    def _replace_trial(self, trial_id: int, data: dict[str, Any]) -> None:
        trials = self.experiment.trials
        place = bisect_left(trials, trial_id, key=lambda t: t.id)
        is_known = place < len(trials) and trials[place].id == trial_id
        trial = TrialView.model_validate((dict(trials[place]) if is_known else {}) | data)
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


def fetch_cluster(client: Client, experiment_id: int) -> ClusterView:
    """Return slots, the front of the queue, and what of the experiment is further back in it."""
    return client.cluster(limit=QUEUE_FRONT, experiment_id=experiment_id)


class ClusterWatch:
    """Keeps slots and queue of a copy current, no oftener than all concerned can bear.

    They are fetched in the thread that follows the feed; whatever is wrong with them, the rest of
    the copy goes on.
    """

    def __init__(self, client: Client, live: LiveExperiment) -> None:
        self._client = client
        self._live = live
        self._is_due = True
        self._not_before = 0.0  # on the monotonic clock

    def hear(self, item: FeedItem | None) -> None:
        """Note whether an item, or a sign of life, makes the copy out of date."""
        known = self._live.cluster
        if item is None:
            # Estimates get better while nothing happens that would be told.
            self._is_due |= bool(self._live.reasons)
            return
        is_known = known is not None and 0 <= known.at - item.at < _CLOCK_STEP_S
        if item.kind == "cluster" and not is_known:
            self._is_due = True

    def refresh(self, stopped: threading.Event) -> bool:
        """Fetch anew what is out of date, after a short wait or later; return whether it was."""
        wait_s = self._not_before - time.monotonic()
        is_over = self._live.experiment.state.is_terminal
        if not self._is_due or is_over or wait_s > _CLUSTER_PERIOD_S:
            return False
        if stopped.wait(max(0.0, wait_s)):
            return False
        started = time.monotonic()
        self._fetch()
        now = time.monotonic()
        self._not_before = now + max(_CLUSTER_PERIOD_S, _CLUSTER_SHARE * (now - started))
        self._is_due = False
        return True

    def _fetch(self) -> None:
        try:
            cluster = fetch_cluster(self._client, self._live.experiment.id)
        except MasterUnreachable:
            raise
        except DetError:
            logger.debug("slots and queue are not known", exc_info=True)
            return
        own = [e for e in cluster.queue if e.experiment_id == self._live.experiment.id]
        own.sort(key=lambda entry: entry.position)
        with self._live.lock:
            self._live.cluster = cluster
            self._live.reasons = {entry.trial_id: entry.reason for entry in own}


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
        watch = ClusterWatch(self._client, live)
        if watch.refresh(self._stopped):
            self._show(live)
        with closing(self._client.feed(self._experiment_id, after=live.seq)) as feed:
            for item in feed:
                if self._stopped.is_set():
                    return
                if item is not None:
                    live.apply(item)
                watch.hear(item)
                if watch.refresh(self._stopped) or item is not None:
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
