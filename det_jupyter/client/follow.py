"""Follows an experiment: a thread keeps a copy of it (`view/live.py`) current from the feed.

The thread fetches the copy once, then applies the feed's items, and reconnects from the last
item's number. Items about slots and the queue have no data: these are fetched again after such an
item, a few times a second at most. `wait_for_end` and `call_at_end` wait for that thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing

from det_jupyter.client.client import Client
from det_jupyter.client.handle_text import state_word
from det_jupyter.contract.messages import ClusterView, ExperimentView, FeedItem, Pause, State
from det_jupyter.contract.messages.curves import most_points
from det_jupyter.errors import Conflict, DetError, MasterUnreachable, RankFailed, WaitTimeout
from det_jupyter.view.live import LiveExperiment

logger = logging.getLogger(__name__)

QUEUE_FRONT = 8  # fetched entries of each pool's queue, and of the experiment's own
_CLUSTER_PERIOD_S = 0.35
_TICK_S = 0.2
_FIRST_LOOK_S = 0.05
_AGAIN_S = 0.5  # pause while a master is being restarted
_CLUSTER_SHARE = 10  # fetching slots and queue takes at most 1/10 of the time
_CLOCK_STEP_S = 5.0  # an item older than the copy by this much: the clock was set back


def fetch(client: Client, experiment_id: int) -> LiveExperiment:
    """Return a copy of the experiment as it is now."""
    # The number is read first: changes during the fetch are repeated by feed items after it.
    experiment = client.experiment(experiment_id)
    seq = experiment.last_seq
    # Half of what the copy may hold: the master thins the curves of a trial with many points.
    max_points = most_points(len(experiment.trials)) // 2
    curves = client.curves(experiment_id, max_points=max_points)
    return LiveExperiment(experiment, curves, client.checkpoints(experiment_id), seq)


def fetch_cluster(client: Client, experiment_id: int) -> ClusterView:
    """Return slots, the front of the queue, and the experiment's first entries in it."""
    return client.cluster(limit=QUEUE_FRONT, experiment_id=experiment_id)


class ClusterRefresh:
    """Fetches slots and queue for a copy when they have changed, at a limited rate.

    Used in the thread that follows the feed. An error is logged, and leaves the rest of the copy
    current.
    """

    def __init__(self, client: Client, live: LiveExperiment) -> None:
        self._client = client
        self._live = live
        self._is_due = True
        self._not_before = 0.0  # on the monotonic clock

    def note(self, item: FeedItem | None) -> None:
        """Mark slots and queue as outdated if a feed item, or a heartbeat (None), shows that."""
        known = self._live.cluster
        if item is None:
            # Estimates of starts change without an item in the feed.
            self._is_due |= bool(self._live.reasons)
            return
        is_known = known is not None and 0 <= known.at - item.at < _CLOCK_STEP_S
        if item.kind == "cluster" and not is_known:
            self._is_due = True

    def refresh(self, stopped: threading.Event) -> bool:
        """Fetch slots and queue if outdated and not too soon; return whether it did."""
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
            self._live.set_cluster(fetch_cluster(self._client, self._live.experiment.id))
        except MasterUnreachable:
            raise
        except DetError:
            logger.debug("slots and queue are not known", exc_info=True)


class Follower:
    """A thread that keeps a copy of one experiment current until it is terminal.

    After a restart of the master it fetches the copy again, and continues from there.

    Args:
        on_change: Called in that thread with the copy, at first and after every item.
        on_error: Called in that thread after `error` is set, if it ends before the experiment.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: int,
        on_change: Callable[[LiveExperiment], None] = lambda live: None,
        on_error: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._on_change = on_change
        self._on_error = on_error
        self._stopped = threading.Event()
        self.lock = threading.Lock()  # held while the copy changes; hold it for a consistent read
        self.live: LiveExperiment | None = None
        self.error: Exception | None = None  # why the thread ended before the experiment
        self.thread = threading.Thread(
            target=self._run, name=f"det-follow-{experiment_id}", daemon=True
        )

    def start(self) -> Follower:
        """Start the thread."""
        self.thread.start()
        return self

    def stop(self) -> None:
        """End the thread at the next item or heartbeat; does not wait for it. Idempotent."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    return self._follow_from(fetch(self._client, self._experiment_id))
                except MasterUnreachable:
                    self._stopped.wait(_AGAIN_S)  # the next master has all data
        except Exception as error:  # the thread's boundary; waiting callers raise `error`
            logger.debug("following experiment %s", self._experiment_id, exc_info=True)
            self.error = error
            self._on_error()

    def _follow_from(self, live: LiveExperiment) -> None:
        self._show(live)
        if live.experiment.state.is_terminal:
            return
        refresh = ClusterRefresh(self._client, live)
        if refresh.refresh(self._stopped):
            self._show(live)
        with closing(self._client.feed(self._experiment_id, after=live.seq)) as feed:
            for item in feed:
                if self._stopped.is_set():
                    return
                if item is not None:
                    with self.lock:
                        live.apply(item)
                refresh.note(item)
                if refresh.refresh(self._stopped) or item is not None:
                    self._show(live)
                    if live.experiment.state.is_terminal:
                        break
            else:
                raise MasterUnreachable("the feed ended")
        # Fetched once more, as items may have come after the last one that was read.
        self._show(fetch(self._client, self._experiment_id))

    def _show(self, live: LiveExperiment) -> None:
        self.live = live
        self._on_change(live)


def follow_until(
    client: Client,
    experiment_id: int,
    timeout: float | None = None,
    *,
    on_tick: Callable[[LiveExperiment], None] = lambda live: None,
    is_enough: Callable[[ExperimentView], bool] = lambda view: False,
) -> None:
    """Block until an experiment has ended, `is_enough` of it, or `timeout` seconds have passed."""
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    follower = Follower(client, experiment_id).start()
    try:
        while follower.thread.is_alive() and time.monotonic() < deadline:
            follower.thread.join(_TICK_S)
            if follower.live is not None:
                on_tick(follower.live)
                if is_enough(follower.live.experiment):
                    break
    finally:
        follower.stop()
    if follower.error is not None:
        raise follower.error


def wait_for_end(
    client: Client,
    experiment_id: int,
    timeout: float | None,
    on_tick: Callable[[LiveExperiment], None],
) -> State:
    """Block until an experiment has ended, and return its state; see `Experiment.wait`."""
    follow_until(client, experiment_id, timeout, on_tick=on_tick, is_enough=is_paused)
    view = client.experiment(experiment_id)
    if view.state is State.ERROR:
        raise _rank_failed(view)
    if view.state.is_terminal:
        return view.state
    if is_paused(view):
        raise Conflict(f"experiment {experiment_id} is paused; activate() lets it go on")
    hangs = [
        f"trial {trial.id}: {trial.hang.sentence(time.time())}"
        for trial in view.trials
        if trial.hang is not None
    ]
    goes_on = f"hangs: {'; '.join(hangs)}" if hangs else "goes on"
    raise WaitTimeout(
        f"experiment {experiment_id} is {state_word(view)} after {timeout or 0:g} s and {goes_on}"
    )


def pause_and_wait(
    client: Client, experiment_id: int, timeout: float | None, *, at_once: bool
) -> State:
    """Pause an experiment, wait until its slots are free, and return its state.

    See `Experiment.pause`.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    state: State = client.change(Pause(experiment_id=experiment_id, at_once=at_once)).state
    pause_s = _FIRST_LOOK_S
    while state is State.PAUSING and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _AGAIN_S)
        state = client.experiment(experiment_id).state
    return state


def is_paused(view: ExperimentView) -> bool:
    """Return whether an experiment is paused, so that its slots are free."""
    return view.state is State.PAUSED


def _rank_failed(view: ExperimentView) -> RankFailed:
    failures = [trial.failure for trial in view.trials if trial.failure is not None]
    first = failures[0] if failures else None
    # A traceback contains the place.
    place = f" (at {first.where})" if first and first.where and not first.traceback else ""
    return RankFailed(
        f"{view.message}{place}",
        run=f"experiment {view.id}",
        rank=first.rank if first else None,
        exit_code=first.exit_code if first else None,
        remote_traceback=first.traceback if first else "",
    )


def call_at_end(client: Client, experiment_id: int, call: Callable[[], object]) -> None:
    """Call `call` once when an experiment has ended, from a background thread."""
    follower = Follower(client, experiment_id).start()

    def await_end() -> None:
        follower.thread.join()
        if follower.error is not None:
            logger.warning("experiment %s is not followed: %s", experiment_id, follower.error)
            return
        try:
            call()
        except Exception:  # the boundary to the user's function
            logger.exception("the callback at the end of experiment %s", experiment_id)

    threading.Thread(target=await_end, name=f"det-end-{experiment_id}", daemon=True).start()
