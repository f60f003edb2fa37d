"""What there is to follow: topics by name and arguments, each one for all tabs that follow it.

    tab -> topic -> overview             all experiments and slots
                 -> followed             an experiment: one copy, whichever trial is chosen
                 -> samples              what devices do

A topic that no tab follows is kept for a moment, as a page that is loaded again asks for the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from det_jupyter.errors import UsageError
from det_jupyter.front.pages.experiment import Experiment, Followed
from det_jupyter.front.pages.experiments import (
    Experiments,
    cluster_topic,
    comparison_topic,
    trials_topic,
)
from det_jupyter.front.pages.frames import Args, ComparisonArgs, ExperimentArgs, UsageArgs
from det_jupyter.front.pages.master import MasterLine
from det_jupyter.front.pages.overview import Overview
from det_jupyter.front.pages.samples import Samples, UsageTopic
from det_jupyter.front.pages.topic import Maker, Topic

T = TypeVar("T")

_NUM_THREADS = 8
_MOST_FOLLOWED = 64  # experiments: each takes a connection to the master
_LINGER_S = 30.0


class Hub:
    """All topics, for the loop's thread; one that no tab follows is kept for `linger_s`."""

    def __init__(self, line: MasterLine, *, linger_s: float = _LINGER_S) -> None:
        self._line = line
        self._linger_s = linger_s
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="det-topic")
        self._overview = Overview(line)
        self._samples = Samples(line, self._overview)
        self._followed: dict[int, Followed] = {}
        self._topics: dict[str, Topic] = {}

    def topic(self, name: str, args: Args) -> Topic:
        """Return the topic of this name with these arguments.

        Raises:
            UsageError: There are too many.
        """
        key = f"{name} {args.model_dump_json()}"
        if key not in self._topics:

            def forget() -> None:
                self._topics.pop(key, None)

            self._topics[key] = Topic(self._maker(name, args), self.in_thread, forget)
        return self._topics[key]

    def leave(self, topic: Topic) -> None:
        """Note that a tab has left a topic; it ends when none is left."""
        if topic.is_idle:
            asyncio.get_running_loop().call_later(self._linger_s, self._end_if_idle, topic)

    async def in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        for topic in self._topics.values():
            topic.stop()
        self._topics.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end_if_idle(self, topic: Topic) -> None:
        if topic.is_idle and topic in self._topics.values():
            self._topics = {key: kept for key, kept in self._topics.items() if kept is not topic}
            topic.stop()

    def _follow(self, number: int) -> Followed:
        if number not in self._followed:
            living = {i: each for i, each in self._followed.items() if not each.listeners.is_idle}
            if len(living) >= _MOST_FOLLOWED:
                raise UsageError(
                    f"{_MOST_FOLLOWED} experiments are open already; close some pages"
                )
            self._followed = living | {number: Followed(self._line, self._overview, number)}
        return self._followed[number]

    def _maker(self, name: str, args: Args) -> Maker:
        overview, line = self._overview, self._line
        match args:
            case UsageArgs():
                return UsageTopic(self._samples, float(args.period_s))
            case ExperimentArgs():
                return Experiment(self._follow(args.experiment_id), args.chosen)
            case ComparisonArgs():
                return comparison_topic(overview, line, args.experiment_ids)
        if name == "experiments":
            return Experiments(overview)
        return cluster_topic(overview) if name == "cluster" else trials_topic(overview, line)
