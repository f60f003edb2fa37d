"""Handles on experiments as the notebook has them: the client's, with a live view and a bar."""

from __future__ import annotations

import functools
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from det_jupyter.client import Client, Comparison, Experiment
from det_jupyter.client.compare import fetch_experiments
from det_jupyter.client.queries import Words, find_by_name, make_query, to_rows
from det_jupyter.client.requests import When, number_of
from det_jupyter.client.tables import Rows
from det_jupyter.contract.messages import ExperimentRows, ExperimentView, Sort, State
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.errors import DetError, NotFound
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.live import LiveView
from det_jupyter.front.notebook.handles.progress import WaitProgress, WaitReasons
from det_jupyter.front.notebook.handles.show import can_draw, front
from det_jupyter.front.verbs.experiment_list import found_text
from det_jupyter.front.verbs.listings import MOST_ROWS
from det_jupyter.view.build.results import Compared
from det_jupyter.view.forms.notebook_output import in_place, key_id
from det_jupyter.view.live import LiveExperiment

logger = logging.getLogger(__name__)


def experiment(which: int | str) -> NotebookExperiment:
    """Return a handle on an experiment, from any kernel.

    Args:
        which: Its number, or its name.

    Raises:
        NotFound: There is no such experiment.
        Conflict: Several have that name; the message has their numbers and dates.
    """
    if not isinstance(which, (int, str)):
        raise NotFound(f"experiment: got {which!r}, expected an experiment's number or its name")
    client = connection.client()
    if isinstance(which, str):
        return NotebookExperiment(client, find_by_name(client, which, NOTEBOOK))
    return experiment_of(client.experiment(which))


def experiments(
    text: str = "",
    *,
    name: str = "",
    label: Words = None,
    notebook: str = "",
    state: Words = None,
    since: When = None,
    until: When = None,
    archived: bool = False,
    sort: Sort = "newest",
    limit: int | None = None,
) -> FoundExperiments:
    """Return handles on the experiments that match; newest first, and all unless limited.

    Args:
        text: Words that are all in name, description, labels, notebook or entrypoint.
        name: The name, in which `*` and `?` stand for anything.
        label: A label, or several, all of which it has.
        notebook: The notebook's path or its end, such as "train.ipynb".
        state: A state, or several: "running", "queued", "paused", "completed", ...
        since: Submitted since a date ("2026-01-31", or a datetime) or in the last "2d" or "12h".
        until: Submitted until then.
        archived: Archived ones too.
        sort: "newest", "oldest", or "metric": the best first, each metric for itself.
        limit: At most so many.

    Raises:
        ConfigError: What is given cannot be.
    """
    query = make_query(
        text, name=name, label=label, notebook=notebook, state=state, since=since, until=until,
        archived=archived, sort=sort, limit=limit,
    )  # fmt: skip
    client = connection.client()
    return FoundExperiments(client, client.find(query))


def compare(*experiments: int | Experiment) -> Comparison:
    """Return how experiments differ: curves, results, configuration, code and versions.

    In a notebook it shows itself with interactive curves.

    Args:
        experiments: Their numbers, or handles.

    Raises:
        UsageError: There are fewer than two, too many, or one twice.
        NotFound: There is no such experiment.
    """
    client = connection.client()
    return NotebookComparison(fetch_experiments(client, [*map(number_of, experiments)]))


@functools.cache
def live_view(experiment_id: int) -> LiveView:
    """Return the experiment's view in this kernel: one, however often it is shown."""
    return LiveView(connection.watching_client(), experiment_id)


@functools.cache
def open_page_door() -> object | None:
    """Draw the experiments that the page has places for; the reader gets to them one by one.

    Returns:
        What has to be kept for as long as that is wanted, or None if nothing can be drawn.
    """
    if front() != "places" or not can_draw():
        return None
    from det_jupyter.front.notebook.handles.widget import DoorWidget

    wanted: SimpleQueue[str] = SimpleQueue()
    # One thread, so that no experiment gets two views; the kernel is not kept from its cells.
    threading.Thread(target=_enliven_all, args=(wanted,), name="det-door", daemon=True).start()
    return DoorWidget(wanted.put)


def _enliven_all(wanted: SimpleQueue[str]) -> None:
    while True:
        key = wanted.get()
        try:
            connection.client()  # waits for the master
            live_view(key_id(key)).enliven(key)
        except DetError as error:  # such as an experiment of another master; its card stays
            logger.info("place %s is not brought to life: %s", key, error)
        except Exception:  # the boundary of the thread
            logger.exception("bringing place %s to life", key)


def experiment_of(view: ExperimentView) -> NotebookExperiment:
    """Return the handle on an experiment whose view is at hand."""
    return NotebookExperiment(connection.client(), view.id)


class FoundExperiments(list["NotebookExperiment"]):
    """Handles on experiments as a list; prints as a table."""

    def __init__(self, client: Client, found: ExperimentRows) -> None:
        super().__init__(NotebookExperiment(client, row.id) for row in found.rows)
        self._found = found

    def table(self) -> Rows:
        """Return a row for each, as it was when it was found."""
        return to_rows(self._found.rows)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each.

        Raises:
            DetError: pandas is not installed.
        """
        return self.table().to_frame()

    def __repr__(self) -> str:
        return found_text(self._found, most=MOST_ROWS)


class NotebookComparison(Comparison):
    """A comparison that shows itself as a widget where there is a front end."""

    def __init__(self, compared: Sequence[Compared], notes: Sequence[str] = ()) -> None:
        super().__init__(compared, notes)
        self._key = f"comparison-{uuid.uuid4().hex}"
        self._widget: Any = None

    def _repr_mimebundle_(
        self, **kwargs: Any
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        forms = {"text/plain": repr(self), "text/html": in_place(self._key, self._repr_html_())}
        where = front()
        if self._widget is None and where in ("places", "outputs") and can_draw():
            from det_jupyter.front.notebook.handles.widget import ComparisonWidget

            self._widget = ComparisonWidget(self.state, self._key)
        if self._widget is None or where != "outputs":
            return forms
        live, metadata = self._widget._repr_mimebundle_()
        return {**live, **forms}, metadata


class NotebookExperiment(Experiment):
    """An experiment that shows itself: live in a notebook, as text in a terminal."""

    def wait(
        self,
        timeout: float | None = None,
        *,
        on_tick: Callable[[LiveExperiment], None] = lambda live: None,
    ) -> State:
        """Block until it has ended, with a progress bar; prints why if nothing of it runs.

        An interrupt (Kernel → Interrupt, or Ctrl-C) ends the waiting, not the experiment.

        Args:
            timeout: Give up after so many seconds, with a WaitTimeout (a TimeoutError).
            on_tick: Called a few times a second with a current copy.

        Raises:
            RankFailed: It ended with an error; the message has the rank's traceback.
            Conflict: It was paused, so it would not end by itself.
            WaitTimeout: It has not ended after `timeout` seconds.
        """
        progress, waiting = WaitProgress(self.id), WaitReasons()

        def tick(live: LiveExperiment) -> None:
            progress.tick(live)
            waiting.tick(live)
            on_tick(live)

        try:
            state = super().wait(timeout, on_tick=tick)
        except KeyboardInterrupt:
            print(
                f"Stopped waiting. Experiment {self.id} goes on; "
                "experiment.wait() waits again, experiment.kill() ends it."
            )
            return self.state
        finally:
            progress.close()
        if message := self.view.message:  # such as why its hyperparameters cannot work
            print(message)
        return state

    def _following_client(self) -> Client:
        return connection.watching_client()

    _comparison = NotebookComparison

    def show(self) -> None:
        """Display its live view here."""
        live_view(self.id).show()

    def _ipython_display_(self) -> None:
        try:
            live_view(self.id).show()
        except DetError as error:
            print(error)
