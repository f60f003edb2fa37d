"""The notebook's handles on experiments, with live view and progress bar; `compare()`."""

from __future__ import annotations

import functools
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from det_jupyter.client import Client, Comparison, Experiment
from det_jupyter.client.calls import explains_arguments, methods_explain_arguments
from det_jupyter.client.handles.compare import fetch_experiments, numbers_to_compare
from det_jupyter.client.handles.queries import Words, find_by_name, make_query, to_rows
from det_jupyter.client.requests import When
from det_jupyter.client.sharing.archive_import import import_archive as read_archive
from det_jupyter.client.tables import Rows
from det_jupyter.contract.messages import ExperimentRows, ExperimentView, Sort, State
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.errors import DetError, NotFound, RankFailed
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.front_end import can_draw, front_end
from det_jupyter.front.notebook.handles.live import LiveView, await_last_picture
from det_jupyter.front.notebook.handles.progress import ReasonPrinter, WaitProgress
from det_jupyter.front.verbs.experiment_list import found_text
from det_jupyter.front.verbs.html_page import write_page
from det_jupyter.front.verbs.listings import MOST_ROWS
from det_jupyter.view import ViewState
from det_jupyter.view.forms.notebook_output import in_place, key_id
from det_jupyter.view.making.results import Compared

logger = logging.getLogger(__name__)


@explains_arguments
def experiment(which: int | str) -> NotebookExperiment:
    """Return a handle on an experiment, which any kernel may have submitted.

    Args:
        which: Its number, or its name.

    Raises:
        NotFound: It does not exist.
        Conflict: Several have that name; the message has their numbers and dates.
    """
    if not isinstance(which, (int, str)):
        raise NotFound(f"experiment: got {which!r}, expected an experiment's number or its name")
    client = connection.client()
    if isinstance(which, str):
        return NotebookExperiment(client, find_by_name(client, which, NOTEBOOK))
    return experiment_of(client.experiment(which))


@explains_arguments
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
    """Return handles on the matching experiments, newest first.

    Args:
        text: Words; each must occur in name, description, labels, notebook or entrypoint.
        name: The name; `*` and `?` are wildcards.
        label: A label, or several, all of which the experiment must have.
        notebook: The notebook's path or its end, such as "train.ipynb".
        state: A state, or several: "running", "queued", "paused", "completed", ...
        since: Submitted since a date ("2026-01-31", or a datetime) or in the last "2d" or "12h".
        until: Submitted until then.
        archived: Include archived ones.
        sort: "newest", "oldest", or "metric": the best first, grouped by metric.
        limit: The largest number of handles.

    Raises:
        ConfigError: An argument is invalid.
    """
    query = make_query(
        text, name=name, label=label, notebook=notebook, state=state, since=since, until=until,
        archived=archived, sort=sort, limit=limit,
    )  # fmt: skip
    client = connection.client()
    return FoundExperiments(client, client.find(query))


@explains_arguments
def compare(*experiments: int | Experiment) -> Comparison:
    """Compare experiments: curves, results, configuration, code and versions.

    In a notebook the result is displayed with interactive curves.

    Args:
        experiments: Their numbers, or handles.

    Raises:
        UsageError: Fewer than two are given, too many, or one twice.
        NotFound: An experiment does not exist.
    """
    numbers = numbers_to_compare("compare", "experiment", experiments)
    return NotebookComparison(fetch_experiments(connection.client(), numbers))


@explains_arguments
def import_archive(path: str | Path) -> NotebookExperiment:
    """Make an experiment of an archive that `Experiment.export_archive` wrote; repeatable.

    It is shown, compared and continued as one that was trained here. No code in it is run before
    it is continued or a checkpoint is loaded; do that only with archives that you trust.

    Args:
        path: The file.

    Raises:
        DetError: It is no archive, of a newer version, or damaged; nothing was imported.
        Conflict: It is here already and was continued, or is an experiment of this master.
    """
    client = connection.client()
    return NotebookExperiment(client, read_archive(client, path).stored.experiment_id)


@functools.cache
def live_view(experiment_id: int) -> LiveView:
    """Return the experiment's live view in this kernel: the same object at each call."""
    return LiveView(connection.client().watching, experiment_id)


@functools.cache
def enliven_page() -> object | None:
    """Make views live that earlier kernels left in the page, when they are scrolled into view.

    Returns:
        The widget that does so, to be kept alive by the cache; None if nothing can be drawn.
    """
    if front_end() != "places" or not can_draw():
        return None
    from det_jupyter.front.notebook.handles.widget import DoorWidget

    keys: SimpleQueue[str] = SimpleQueue()
    # One thread, so that no experiment gets two views, and cells are not delayed.
    threading.Thread(target=_enliven_all, args=(keys,), name="det-door", daemon=True).start()
    return DoorWidget(keys.put)


def _enliven_all(keys: SimpleQueue[str]) -> None:
    while True:
        key = keys.get()
        try:
            connection.client()  # waits for the master
            live_view(key_id(key)).enliven(key)
        except DetError as error:  # such as an experiment of another master; its picture stays
            logger.info("the view %s does not become live: %s", key, error)
        except Exception:  # the boundary of the thread
            logger.exception("making the view %s live", key)


def experiment_of(view: ExperimentView) -> NotebookExperiment:
    """Return the handle on the experiment of this view."""
    return NotebookExperiment(connection.client(), view.id)


class FoundExperiments(list["NotebookExperiment"]):
    """A list of handles on experiments; prints as a table."""

    def __init__(self, client: Client, found: ExperimentRows) -> None:
        super().__init__(NotebookExperiment(client, row.id) for row in found.rows)
        self._found = found

    def table(self) -> Rows:
        """Return a row for each experiment, with its data at the time of the query."""
        return to_rows(self._found.rows)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each experiment.

        Raises:
            DetError: pandas is not installed.
        """
        return self.table().to_frame()

    def __repr__(self) -> str:
        return found_text(self._found, most=MOST_ROWS)


class NotebookComparison(Comparison):
    """A comparison that is displayed as a widget where the front end supports it."""

    def __init__(self, compared: Sequence[Compared], notes: Sequence[str] = ()) -> None:
        super().__init__(compared, notes)
        self._key = f"comparison-{uuid.uuid4().hex}"
        self._widget: Any = None

    def _repr_mimebundle_(
        self, **kwargs: Any
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        forms = {"text/plain": repr(self), "text/html": in_place(self._key, self._repr_html_())}
        where = front_end()
        if self._widget is None and where in ("places", "outputs") and can_draw():
            from det_jupyter.front.notebook.handles.widget import ComparisonWidget

            self._widget = ComparisonWidget(self.state, self._key)
        if self._widget is None or where != "outputs":
            return forms
        live, metadata = self._widget._repr_mimebundle_()
        return {**live, **forms}, metadata


@methods_explain_arguments
class NotebookExperiment(Experiment):
    """A handle that is displayed as a live view in a notebook, as text in a terminal."""

    def delete(self, *, ask: bool = True) -> None:
        """Delete the experiment permanently; see `Experiment.delete`."""
        super().delete(ask=ask)

    def export_html(self, path: str | Path) -> Path:
        """Write the view to one HTML file, which a browser shows without anything else.

        Secrets of this process's environment, and values of the experiment's environment variables
        are left out.

        Args:
            path: The file; one that is there is replaced.

        Raises:
            DetError: The front end is not built, or the file cannot be written.
        """
        return write_page(self._client, self.id, path)

    def _wait(self, timeout: float | None, on_tick: Callable[[ViewState], None]) -> State:
        progress, waiting = WaitProgress(self.id), ReasonPrinter(self._client)

        def tick(view: ViewState) -> None:
            progress.tick(view)
            waiting.tick(view)
            on_tick(view)

        try:
            state = super()._wait(timeout, tick)
        except KeyboardInterrupt:
            print(
                f"Stopped waiting. Experiment {self.id} goes on; "
                f"det_jupyter.experiment({self.id}).wait() waits again, .kill() ends it."
            )
            return self.state
        except RankFailed:
            await_last_picture(self.id)
            raise
        finally:
            progress.close()
        await_last_picture(self.id)
        if message := self.view.message:  # such as why its hyperparameters cannot work
            print(message)
        return state

    def pause(self, timeout: float | None = 5.0, *, at_once: bool = False) -> State:
        """As `Experiment.pause`; prints what it waits for if its slots are not free then."""
        state = super().pause(timeout, at_once=at_once)
        if state is State.PAUSING:
            print(f"{self.why()}")
        return state

    _comparison = NotebookComparison

    def show(self) -> None:
        """Display the experiment's live view below this cell."""
        live_view(self.id).show()

    def _ipython_display_(self) -> None:
        try:
            live_view(self.id).show()
        except DetError as error:
            print(error)
