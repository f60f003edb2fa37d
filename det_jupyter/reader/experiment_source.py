"""The documents `experiment` and `curves`: the view state of one experiment, and its curves.

All tabs that show an experiment share its curves and trials, whichever trial they have chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from det_jupyter.contract.documents.patches import Document, plain
from det_jupyter.contract.messages import (
    ClusterView,
    Curves,
    ExperimentView,
    Reason,
    TrialView,
)
from det_jupyter.contract.messages.curves import most_points
from det_jupyter.errors import NotFound
from det_jupyter.master.service.current_views import Views
from det_jupyter.reader.known_importance import KnownImportance
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.replica import News, Replica
from det_jupyter.view import ViewState, build_view_state
from det_jupyter.view.model.status_looks import ENDED

QUEUE_FRONT = 8  # number of waiting trials: of each pool's queue, and of the experiment
_MAX_AGE_S = 10.0


class FollowedExperiment:
    """The curves, trials and slots of an experiment, kept between the versions of its document.

    Thread-safe.
    """

    def __init__(self, replica: Replica, experiment_id: int) -> None:
        self._replica = replica
        self._experiment_id = experiment_id
        self._lock = threading.Lock()
        self._existed = False
        self._curves = Curves()
        # Number of the last feed item in the curves; None: not read yet.
        self._seq: int | None = None
        self._trials: dict[int, TrialView] = {}
        # Guards `_changed`, to which `_on_news` adds in another thread.
        self._news_lock = threading.Lock()
        self._changed: set[int] | None = None  # ids of trials to be made anew; None: all
        self._cluster: ClusterView | None = None
        self._reasons: dict[int, Reason] = {}
        self._is_cluster_due = True
        self.listeners: Listeners[[]] = Listeners(self._begin)
        self._importance = KnownImportance(
            lambda: replica.importance(experiment_id), self.listeners.notify
        )

    def _begin(self) -> Callable[[], None]:
        self._have_all_made()  # changes without listeners were missed
        return self._replica.listeners.add(self._on_news)

    def _on_news(self, news: News) -> None:
        number = self._experiment_id
        with self._news_lock:
            if self._changed is not None:
                self._changed |= news.trials
        self._is_cluster_due |= news.is_cluster
        is_own = number in news.experiments or number in news.gone or number in news.with_metrics
        is_waiting = self._changed is None or not self._existed  # waiting for the first news
        if is_own or news.is_cluster or self._reasons or is_waiting:
            self.listeners.notify()

    def _have_all_made(self) -> None:
        """Make the next call of `state` make all trials and slots anew."""
        with self._news_lock:
            self._changed, self._is_cluster_due = None, True

    @property
    def is_ready(self) -> bool:
        """Whether the master's state has been read; when it is, listeners are called."""
        return self._replica.is_ready

    def state(self, chosen: int | None) -> ViewState:
        """Return the present view state.

        Args:
            chosen: The trial of a search whose details are included; None: no choice.

        Raises:
            NotFound: The experiment does not exist.
            MasterUnreachable: The database cannot be read now.
        """
        with self._lock:
            view = self._view_and_curves()
            self._importance.refresh(view)
            return build_view_state(
                view,
                list(self._curves.values()),
                self._replica.checkpoints(self._experiment_id),
                self._replica.clock(),
                chosen_id=chosen,
                cluster=self._cluster,
                reasons=self._reasons,
                importance=self._importance.latest,
            )

    def curves(self, group: str) -> Document:
        """Return the present curves of a group of metrics.

        Raises:
            NotFound, MasterUnreachable: As `state`.
        """
        with self._lock:
            self._view_and_curves()
            return {"curves": plain([c for c in self._curves.values() if c.group == group])}

    def _view_and_curves(self) -> ExperimentView:
        """Read what is new, including the curves; return the experiment."""
        try:
            view = self._view()
        except NotFound:
            if self._existed:
                raise NotFound(f"experiment {self._experiment_id} was deleted") from None
            self._replica.advance()  # it may just have been submitted
            view = self._view()
        self._existed = True
        self._read_curves(len(view.trials))
        return view

    def _view(self) -> ExperimentView:
        """Return the experiment; make only the trials anew that have changed."""
        try:
            with self._replica.viewing() as views:
                return self._view_of(views)
        except BaseException:  # an interrupt too: the set of changes is lost
            self._have_all_made()
            raise

    def _view_of(self, views: Views) -> ExperimentView:
        number = self._experiment_id
        with self._news_lock:
            changed, self._changed = self._changed, set()
        known = {} if changed is None else self._trials
        view = views.experiment(number, known=known, changed=changed or ())
        is_live = not view.state.is_terminal
        has_estimates = self._cluster is not None and self._cluster.num_waiting > 0
        if is_live and (self._is_cluster_due or has_estimates):
            self._is_cluster_due = False
            self._cluster = views.cluster(limit=QUEUE_FRONT, experiment_id=number)
            self._reasons = self._cluster.reasons_of(number)
        elif not is_live:
            self._cluster, self._reasons = None, {}
        self._trials = {trial.id: trial for trial in view.trials}
        return view

    def _read_curves(self, num_trials: int) -> None:
        if self._seq is None:
            # The number is read first: items that are added meanwhile are read again later.
            seq = self._replica.last_item
            # Half of the points that a trial's curves may hold: with more, they are thinned.
            most = most_points(num_trials) // 2
            self._curves = Curves.of(self._replica.curves(self._experiment_id, max_points=most))
            self._seq = seq
        for seq, trial_id, record in self._replica.metrics_after(self._experiment_id, self._seq):
            if record["kind"] == "truncated":
                self._curves.truncate(trial_id, record["steps_completed"])
            else:
                self._curves.add(trial_id, record)
            self._seq = seq


class ExperimentSource:
    """Makes a ViewState, with the details of the trial `chosen` of a search."""

    period_s = 0.25
    max_age_s: float | None = _MAX_AGE_S  # pages report an error if nothing arrives for longer

    def __init__(self, followed: FollowedExperiment, chosen: int | None) -> None:
        self._followed = followed
        self._chosen = chosen

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        return self._followed.listeners.add(mark_stale)

    def make(self) -> Document | None:
        if not self._followed.is_ready:
            return None
        state = self._followed.state(self._chosen)
        self.max_age_s = None if state["status"] in ENDED else _MAX_AGE_S
        document: Document = plain(state)
        return document


class CurvesSource:
    """Makes the curves of an experiment's metrics of one group."""

    period_s = 0.25
    max_age_s: float | None = None

    def __init__(self, followed: FollowedExperiment, group: str) -> None:
        self._followed = followed
        self._group = group

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        return self._followed.listeners.add(mark_stale)

    def make(self) -> Document | None:
        if not self._followed.is_ready:
            return None
        return self._followed.curves(self._group)
