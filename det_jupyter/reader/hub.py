"""Documents by name and arguments; all tabs that follow the same one share it.

    tab -> live document -> source -> Overview            all experiments and slots
                                   -> FollowedExperiment  one experiment, for any chosen trial
                                   -> DeviceSamples       utilization of devices
                                   -> ModelsSource        the registry of models
                                              |
                                              v
                                   Replica                the master's state

A document that no tab follows is kept for some seconds, as a page that is reloaded follows it
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from det_jupyter.errors import UsageError
from det_jupyter.reader.experiment_source import CurvesSource, ExperimentSource, FollowedExperiment
from det_jupyter.reader.frames import (
    Args,
    ComparisonArgs,
    CurvesArgs,
    ExperimentArgs,
    ModelArgs,
    UsageArgs,
)
from det_jupyter.reader.list_sources import (
    ExperimentsSource,
    cluster_source,
    comparison_source,
    trials_source,
)
from det_jupyter.reader.live_document import LiveDocument, Source
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.model_sources import model_source, models_source
from det_jupyter.reader.overview import Overview
from det_jupyter.reader.replica import Replica
from det_jupyter.reader.usage_source import DeviceSamples, UsageSource
from det_jupyter.view import ViewState

T = TypeVar("T")

_NUM_THREADS = 8
# Most experiments whose curves are kept in memory; each wait() of a client follows one too.
_MOST_FOLLOWED = 1000
_LINGER_S = 30.0


class Hub:
    """All live documents. Not thread-safe.

    Args:
        replica: The master's state.
        path: The master's database.
        connection: The connection to the master, through which agents are requested to take
            samples.
        linger_s: Seconds for which a document that no tab follows is kept.
    """

    def __init__(
        self,
        replica: Replica,
        path: Path,
        connection: MasterConnection,
        *,
        linger_s: float = _LINGER_S,
    ) -> None:
        self._replica = replica
        self._linger_s = linger_s
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="det-document")
        self._overview = Overview(replica)
        self._samples = DeviceSamples(
            path, self._overview, lambda agent_id: connection.client().take_samples(agent_id)
        )
        self._followed: dict[int, FollowedExperiment] = {}
        self._documents: dict[str, LiveDocument] = {}

    def document(self, name: str, args: Args) -> LiveDocument:
        """Return the document with this name and these arguments; create it if it does not exist.

        Raises:
            UsageError: Too many experiments are followed.
        """
        key = f"{name} {args.model_dump_json()}"
        if key not in self._documents:

            def remove() -> None:
                self._documents.pop(key, None)

            source = self._source(name, args)
            self._documents[key] = LiveDocument(
                source, self._in_thread, remove, self._replica.refresh
            )
        return self._documents[key]

    def state(self, experiment_id: int) -> ViewState:
        """Return the view state of an experiment, whether tabs follow it or not. Thread-safe."""
        self._replica.advance()
        followed = self._followed.get(experiment_id)
        if followed is None or followed.listeners.is_idle:
            followed = FollowedExperiment(self._replica, experiment_id)
        return followed.state(None)

    def leave(self, document: LiveDocument) -> None:
        """Stop a document after a delay, if no other tab follows it by then."""
        if document.is_idle:
            asyncio.get_running_loop().call_later(self._linger_s, self._end_if_idle, document)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        for document in self._documents.values():
            document.stop()
        self._documents.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end_if_idle(self, document: LiveDocument) -> None:
        documents = self._documents
        if document.is_idle and document in documents.values():
            self._documents = {key: d for key, d in documents.items() if d is not document}
            document.stop()

    def _experiment(self, number: int) -> FollowedExperiment:
        if number not in self._followed:
            if len(self._drop_unused()) >= _MOST_FOLLOWED:
                for document in list(self._documents.values()):
                    self._end_if_idle(document)
            if len(self._drop_unused()) >= _MOST_FOLLOWED:
                raise UsageError(
                    f"{_MOST_FOLLOWED} experiments are shown in pages or waited for, as many as "
                    "one reader follows; close some pages, or wait for fewer experiments"
                )
            self._followed[number] = FollowedExperiment(self._replica, number)
        return self._followed[number]

    def _drop_unused(self) -> dict[int, FollowedExperiment]:
        """Drop the experiments that no document follows, and return the others."""
        followed = self._followed.items()
        self._followed = {i: each for i, each in followed if not each.listeners.is_idle}
        return self._followed

    def _source(self, name: str, args: Args) -> Source:
        overview, replica = self._overview, self._replica
        match args:
            case UsageArgs():
                return UsageSource(self._samples, float(args.period_s))
            case ExperimentArgs():
                return ExperimentSource(self._experiment(args.experiment_id), args.chosen)
            case CurvesArgs():
                return CurvesSource(self._experiment(args.experiment_id), args.group)
            case ComparisonArgs():
                return comparison_source(overview, replica, args.experiment_ids)
            case ModelArgs():
                return model_source(replica, args.id)
        if name == "experiments":
            return ExperimentsSource(overview)
        if name == "models":
            return models_source(replica)
        return cluster_source(overview) if name == "cluster" else trials_source(overview, replica)
