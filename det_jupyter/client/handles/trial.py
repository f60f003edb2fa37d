"""A handle on one trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from det_jupyter.client.calls import methods_explain_arguments
from det_jupyter.client.client import Client
from det_jupyter.client.following.hang_report import ShownHang, hang_text
from det_jupyter.client.following.log_lines import (
    TAIL,
    LogFilter,
    LogLines,
    follow_lines,
    query_of,
    read,
)
from det_jupyter.client.handle_text import ranked, trial_line
from det_jupyter.client.handles.exports import step_columns, system_columns, timing_columns
from det_jupyter.client.handles.rank import Rank
from det_jupyter.client.handles.reasons import ShownReason, ShownVerdict, shown_verdict
from det_jupyter.client.handles.trial_orders import (
    Trace,
    Traces,
    TrialChange,
    change_live,
    record_profile,
)
from det_jupyter.client.imports.event_files import EventFiles, write_event_files
from det_jupyter.client.requests import When, make_request, to_moment
from det_jupyter.client.tables import Columns
from det_jupyter.contract.messages import (
    ContinueTrial,
    ExperimentView,
    KillTrial,
    LogLine,
    ProfileTrial,
    RankView,
    SeriesQuery,
    SizeChange,
    State,
    TimingsView,
    TrialView,
)
from det_jupyter.contract.messages.queries import MAX_COLUMNS
from det_jupyter.contract.messages.rank_orders import MAX_TRACE_BYTES
from det_jupyter.contract.messages.status import in_words
from det_jupyter.contract.values.measures import STATISTICS
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound


@methods_explain_arguments
class Trial:
    """One trial of an experiment.

    Args:
        client: Sends requests to the master.
        trial_id: Its number.
        experiment_of: Returns the handle of an experiment by its number.
    """

    def __init__(self, client: Client, trial_id: int, experiment_of: Callable[[int], Any]) -> None:
        self._client = client
        self._experiment_of = experiment_of
        self.id = trial_id

    @property
    def view(self) -> TrialView:
        """Everything that the master stores of the trial, fetched now."""
        return self._client.trial(self.id)

    @property
    def state(self) -> str:
        """The trial's state, fetched now."""
        return self.view.state

    @property
    def hparams(self) -> dict[str, Any]:
        """The trial's hyperparameters."""
        return self.view.hparams

    @property
    def ranks(self) -> list[Rank]:
        """The trial's ranks.

        Raises:
            Conflict: It is not running.
        """
        view = self.view
        if view.allocation is None or not view.allocation.ranks:
            starting = "its ranks are starting; try again in a moment"
            now = starting if view.state is State.ACTIVE else f"it is {in_words(view.state)}"
            why = view.waiting_for or now
            raise Conflict(f"trial {self.id} has no ranks now: {why}")
        return [
            Rank(rank, self.id, self.profile, self._why_silent) for rank in view.allocation.ranks
        ]

    def _why_silent(self, rank: RankView) -> str:
        """Return why a rank cannot be reached; "" if no reason is found."""
        try:
            allocation = self.view.allocation
            ranks = allocation.ranks if allocation is not None else []
            if allocation is None or rank.process not in [each.process for each in ranks]:
                return "it has ended"
            agent_id = allocation.agent_of(rank.rank)
            agents = self._client.agents() if rank.is_remote else []
            return next((agent.why_silent for agent in agents if agent.id == agent_id), "")
        except DetError as error:
            return str(error)

    def stacks(self) -> dict[int, str]:
        """Return the stack of each rank by its number, or why the rank does not answer."""
        ranks = self.ranks
        with ThreadPoolExecutor(len(ranks)) as pool:
            stacks = list(pool.map(_stack_or_reason, ranks))
        return Stacks({rank.view.rank: text for rank, text in zip(ranks, stacks, strict=True)})

    @overload
    def logs(self, *, follow: Literal[False] = False, **which: Unpack[LogFilter]) -> LogLines: ...

    @overload
    def logs(self, *, follow: Literal[True], **which: Unpack[LogFilter]) -> Iterator[LogLine]: ...

    def logs(
        self,
        *,
        rank: int | None = None,
        agent: str | None = None,
        since: When = None,
        level: str | None = None,
        search: str | None = None,
        tail: int | None = TAIL,
        follow: bool = False,
    ) -> LogLines | Iterator[LogLine]:
        """Return the last `tail` lines that its ranks printed; with None, all of them.

        Args:
            rank: Only lines of this rank.
            agent: Only lines of ranks on this agent (one computer).
            since: Only later lines: an age such as "10m", a date, or a time.
            level: Only lines of this level or a higher one: debug, info, warning, error, critical.
                The level is recognised in the line; a traceback is an error.
            search: Only lines with this text, in any case; as "/.../" a regular expression.
            tail: Number of lines; the result's `total` is the number of lines that match.
            follow: Return an iterator that waits for more lines until the trial has ended.
        """
        query = query_of(rank=rank, agent=agent, since=since, level=level, search=search)
        client = self._client.watching if follow else self._client
        fetch = partial(client.logs, self.id)
        return (follow_lines if follow else read)(fetch, query, tail)

    def profile(
        self,
        steps: int = 10,
        ranks: Iterable[int] = (0,),
        *,
        max_bytes: int = MAX_TRACE_BYTES,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        timeout: float = 300.0,
    ) -> Traces:
        """Record the next batches with torch.profiler while it trains, and return the traces.

        Args:
            steps: Batches to record, at most 1000; fewer are recorded if `max_bytes` requires it.
            ranks: Which ranks to record.
            max_bytes: Limit of the size of each compressed trace.
            record_shapes, profile_memory, with_stack: As in torch.profiler.profile.
            timeout: Seconds to wait for the traces.

        Raises:
            Conflict: It does not train, is being profiled, or there is no trace in time.
            ConfigError: An argument cannot be used.
        """
        request = make_request(
            ProfileTrial,
            trial_id=self.id,
            steps=steps,
            ranks=list(ranks),
            max_bytes=max_bytes,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
        )
        return record_profile(self._client, request, timeout)

    def profiles(self) -> list[Traces]:
        """Return the traces of its latest profiles, oldest first."""
        views = self._client.trial(self.id).profiles
        return [Traces(Trace(trace) for trace in view.traces) for view in views]

    def change(
        self,
        *,
        lr: float | None = None,
        lr_factor: float | None = None,
        optimizer: int | None = None,
        min_validation_period: dict[str, int] | int | None = None,
        priority: int | None = None,
        timeout: float = 60.0,
    ) -> TrialChange | None:
        """Change the trial while it trains, on all ranks after the same batch.

        Later runs repeat the change at that batch, so a trial that is paused and continued gives
        the same result as one that is not.

        Args:
            lr: The learning rate from now on. What schedulers compute later changes in proportion.
            lr_factor: Multiplies all learning rates, and what schedulers compute, instead.
            optimizer: Only of this optimizer, counted from 0; with `lr` if there are several.
            min_validation_period: As in the configuration, such as {"batches": 50}.
            priority: The priority of its experiment.
            timeout: Seconds to wait until it has taken effect.

        Returns:
            The change; None if only the priority was changed.

        Raises:
            Conflict: It is not active, or its ranks refuse the change.
            ConfigError: An argument cannot be used.
        """
        return change_live(
            self._client,
            self.id,
            timeout,
            priority=priority,
            lr=lr,
            lr_factor=lr_factor,
            optimizer=optimizer,
            min_validation_period=min_validation_period,
        )

    def changes(self) -> list[TrialChange]:
        """Return the changes that were made while the trial trained, oldest first."""
        return [TrialChange(view) for view in self._client.trial(self.id).changes]

    def sizes(self) -> list[SizeChange]:
        """Return the numbers of slots that an elastic trial has had and why, oldest first."""
        return self.view.sizes

    def timings(self) -> dict[str, list[float | None]]:
        """Return the durations of the parts of its batches, if `profiling.enabled` recorded them.

        Lists of equal length, which a DataFrame accepts: `batch_idx`, `samples_per_second`
        (of all ranks together), and seconds on the chief: `batch`, `dataloader_next`, `to_device`,
        `train_batch`, `train_batch.backward`, ... None: that batch has no such part.
        """
        records: list[TimingsView] = []
        while page := self._client.timings(self.id, after=records[-1].id if records else 0):
            records += page
        return timing_columns(records)

    def system_metrics(self, since: When = None, until: When = None) -> Columns:
        """Return samples of its processes, and of the machines and GPUs that they ran on.

        Columns of equal length, which a DataFrame accepts: `time` (UTC seconds), `source`
        (`host`, `gpu:UUID`, `rank:0`, `workers:0`), `name`, `unit`, `min`, `mean`, `max`. At most
        4,000 rows of each series are returned; in a long period a row summarises many samples.
        """
        query = _series_query("system", since, until)
        return system_columns(self._client.series(self.id, query).series)

    def step_times(self, since: When = None, until: When = None) -> Columns:
        """Return how long each part of a batch took on each rank, in seconds.

        Columns of equal length: `time` (begin of the interval), `rank`, `part` (`forward`,
        `dataloader_next`, `section.NAME`, ...), `per_batch` (the mean), and of single durations
        `p50`, `p95` and `max`. In a long period a row summarises many intervals; percentiles are
        then means of percentiles.
        """
        query = _series_query("timings", since, until)
        parts = self._client.series(self.id, query).series
        named = dict.fromkeys(
            f"{one.name}.{statistic}"
            for one in parts
            if one.unit == "s"
            for statistic in STATISTICS
        )
        if not named:
            return step_columns(parts)
        more = query.model_copy(update={"names": [*named]})
        return step_columns([*parts, *self._client.series(self.id, more).series])

    def tensorboard(self, folder: str | Path | None = None) -> EventFiles:
        """Write TensorBoard files of this trial alone; see `Experiment.tensorboard`."""
        folder = Path(folder or f"tensorboard/trial-{self.id}")
        return write_event_files(self._client, self.view.experiment_id, [self.id], folder)

    @property
    def verdict(self) -> ShownVerdict:
        """What limits the training: a sentence with shares, evidence and advice, fetched now."""
        view = self.view
        config = {} if view.verdict else self._client.experiment(view.experiment_id).config
        return shown_verdict(view.verdict, config)

    def why(self) -> ShownReason:
        """Return why the trial does not run: one sentence, and what would start it."""
        return ShownReason(**dict(self._client.reason(self.id)))

    def hang_report(self, path: str | Path | None = None) -> ShownHang:
        """Return what is known of its ranks while it hangs, as text for a bug report.

        Args:
            path: A file to write it to as well.

        Raises:
            Conflict: It does not hang, as far as is known.
        """
        view = self.view
        if view.hang is None:
            raise Conflict(
                f"trial {self.id} is not known to hang: it is {in_words(view.state)}; "
                "trial.stacks() shows where its ranks are"
            )
        text = hang_text(view, view.hang)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def kill(self) -> None:
        """End the trial now; unsaved progress is lost. Its experiment goes on."""
        self._client.change(KillTrial(trial_id=self.id))

    def train_to(self, length: dict[str, int] | int) -> Any:
        """Train the trial further, as a new experiment, and return its handle.

        The training continues from its latest checkpoint, with its hyperparameters and its seed.

        Args:
            length: The length, counted from the trial's beginning, such as {"epochs": 12}.

        Raises:
            ConfigError: It has no checkpoint.
            Conflict: It trains now.
        """
        view = self._client.continue_trial(self.id, make_request(ContinueTrial, length=length))
        return self._experiment_of(view.id)

    def __repr__(self) -> str:
        try:
            return trial_line(self.view)
        except DetError as error:
            return f"Trial {self.id} ({error})"


def choose_trial(view: ExperimentView, trial: Trial | None) -> TrialView:
    """Return the trial whose hyperparameters to use: `trial`, else the best, else the first.

    Raises:
        ConfigError: `trial` is no handle on a trial of the experiment.
        NotFound: The experiment has no trial yet.
    """
    own = [one.id for one in view.trials]
    if trial is not None and getattr(trial, "id", None) not in own:
        raise ConfigError(
            [f"trial: got {trial!r}, expected a handle of one of experiment {view.id}: {own}"]
        )
    chosen = trial.view if trial is not None else next(iter(ranked(view)), None)
    if chosen is None:
        raise NotFound(f"experiment {view.id} has no trial yet")
    return chosen


class Stacks(dict[int, str]):
    """Stacks by rank; prints as one text."""

    def __repr__(self) -> str:
        return "\n".join(
            f"── rank {rank} " + "─" * 60 + f"\n{text}" for rank, text in self.items()
        )


def _series_query(of: str, since: When, until: When) -> SeriesQuery:
    now = time.time()
    return make_request(
        SeriesQuery,
        of=of,
        since=to_moment("since", since, now),
        until=to_moment("until", until, now, is_end=True),
        columns=MAX_COLUMNS,
    )


def _stack_or_reason(rank: Rank) -> str:
    from jupyter_core.utils import ensure_event_loop

    try:
        return rank.stack()
    except DetError as error:
        return f"({error})"
    finally:
        ensure_event_loop().close()  # jupyter_client's, of this thread, which ends now
