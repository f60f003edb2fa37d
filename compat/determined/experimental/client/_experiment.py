"""An experiment, with the methods that Determined's has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from det_jupyter.client import Experiment as OwnExperiment
from det_jupyter.contract.messages import State, TrialView
from det_jupyter.errors import Conflict, DetError, RankFailed
from determined._lacking import Handle
from determined.experimental.client._checkpoint import Checkpoint
from determined.experimental.client._sorting import OrderBy, TrialSortBy, in_order
from determined.experimental.client._trial import (
    SortKey,
    Trial,
    checkpoints_in_order,
    top_checkpoints,
)


class Experiment(OwnExperiment, Handle):
    """An experiment that the master runs."""

    @property
    def description(self) -> str:
        """What it is about."""
        return self.view.description

    @property
    def labels(self) -> list[str]:
        """The words to find it by."""
        return self.view.labels

    @property
    def archived(self) -> bool:
        """Whether it is put aside."""
        return self.view.is_archived

    def reload(self) -> None:
        """Do nothing: the master is asked each time."""

    def wait(self, interval: float = 5.0) -> State:  # type: ignore[override]  # Determined's
        """Block until it has ended, with an error too, and return its state.

        One that is paused is waited for, too: it may be activated.
        """
        while True:
            try:
                return super().wait()
            except RankFailed:
                return State.ERROR
            except Conflict:
                time.sleep(interval)

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Block until it has a trial, and return that.

        Raises:
            DetError: It has ended without one.
        """
        while not (view := self.view).trials:
            if view.state.is_terminal:
                raise DetError(f"experiment {self.id} is {view.state} and never had a trial")
            time.sleep(interval)
        return self._trials(view.trials)[0]

    def list_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASCENDING
    ) -> list[Trial]:
        """Return its trials, by default in the order in which they were made."""
        views = in_order(self.view.trials, lambda view: getattr(view, sort_by.value), order_by)
        return self._trials(views)

    get_trials = list_trials

    def iter_trials(
        self,
        sort_by: TrialSortBy = TrialSortBy.ID,
        order_by: OrderBy = OrderBy.ASCENDING,
        limit: int | None = None,
    ) -> Iterator[Trial]:
        """Yield its trials; `limit` is of no account, as they come at once."""
        yield from self.list_trials(sort_by, order_by)

    def list_checkpoints(
        self,
        sort_by: SortKey = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """Return its checkpoints that are kept, by default the latest first."""
        view, found = self.view, self._client.checkpoints(self.id)
        return checkpoints_in_order(self._client, view, found, sort_by, order_by, max_results)

    def top_checkpoint(
        self, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> Checkpoint:
        """Return the best checkpoint by a metric of validations, by default the searcher's.

        Raises:
            NotFound: None was saved together with such a validation.
        """
        return self.top_n_checkpoints(1, sort_by, smaller_is_better)[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """Return the best checkpoints, the best first.

        Raises:
            NotFound: None was saved together with such a validation.
        """
        view, found = self.view, self._client.checkpoints(self.id)
        return top_checkpoints(self._client, view, found, limit, sort_by, smaller_is_better)

    def set_labels(self, labels: Iterable[str]) -> None:
        """Give it these labels, instead of those that it has."""
        labels, now = [*labels], self.labels
        if surplus := [label for label in now if label not in labels]:
            self.remove_label(*surplus)
        if new := [label for label in labels if label not in now]:
            self.add_label(*new)

    def _trials(self, views: Iterable[TrialView]) -> list[Trial]:  # type: ignore[override]
        return [Trial(self._client, view.id, self._handle) for view in views]
