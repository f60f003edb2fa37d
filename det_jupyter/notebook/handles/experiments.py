"""Handles on experiments as the notebook has them: the client's, with a live view and a bar."""

from __future__ import annotations

import functools
from collections.abc import Callable

from det_jupyter.client import Client, Comparison, Experiment
from det_jupyter.client.compare import fetch_experiments
from det_jupyter.errors import DetError, NotFound
from det_jupyter.notebook.handles import connection
from det_jupyter.notebook.handles.comparison import NotebookComparison
from det_jupyter.notebook.handles.live import LiveView
from det_jupyter.notebook.handles.progress import WaitProgress, WaitReasons
from det_jupyter.view.live import LiveExperiment
from det_jupyter.wire import ExperimentView, State


def experiment(experiment_id: int) -> NotebookExperiment:
    """Return a handle on an experiment, from any kernel.

    Raises:
        NotFound: There is no such experiment.
    """
    if not isinstance(experiment_id, int):
        raise NotFound(f"experiment: got {experiment_id!r}, expected the number of an experiment")
    return experiment_of(connection.client().experiment(experiment_id))


def experiments() -> list[NotebookExperiment]:
    """Return handles on all experiments, oldest first."""
    return [experiment_of(view) for view in connection.client().experiments()]


def compare(*experiments: int) -> Comparison:
    """Return how experiments differ: curves, results, configuration, code and versions.

    In a notebook it shows itself with interactive curves.

    Args:
        experiments: Their numbers.

    Raises:
        UsageError: There are fewer than two, too many, or one twice.
        NotFound: There is no such experiment.
    """
    client = connection.client()
    return NotebookComparison(fetch_experiments(client, experiments))


@functools.cache
def _live_view(experiment_id: int) -> LiveView:
    # One per experiment and kernel, however often it is shown: they share a widget and a thread.
    return LiveView(connection.watching_client(), experiment_id)


def experiment_of(view: ExperimentView) -> NotebookExperiment:
    """Return the handle on an experiment whose view is at hand."""
    return NotebookExperiment(connection.client(), view.id)


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
        """Display its live view here; interactive even when it has ended."""
        _live_view(self.id).show()

    def _ipython_display_(self) -> None:
        try:
            _live_view(self.id).show(interactive=False)
        except DetError as error:
            print(error)
