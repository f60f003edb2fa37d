"""Sends experiments to MLflow: a run for each trial.

MLflow's databases drop a row of a metric that they have, its other stores append it once more. So
nothing relies on that: when the process meets a run for the first time, it reads the last step of
each metric back, and sends only later ones. A run is looked for by its tag before one is made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the master tries again
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # it would report to MLflow's makers

import mlflow.exceptions
import requests
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from det_jupyter.contract.messages import FeedItem, TrackerWork
from det_jupyter.errors import NotFound
from det_jupyter.trackers.contents import (
    Point,
    RunFacts,
    RunStatus,
    code_file,
    plain_name,
    points_in,
    take_new,
)
from det_jupyter.trackers.service import Refused, Source, Unreachable, without_secrets

logger = logging.getLogger(__name__)

_KEY = "det_jupyter.key"  # the tag by which a run is found again
_CODE = "det_jupyter.code"  # the tag that says where the code is; set last
_CLEARED = ("mlflow.note.content", "det_jupyter.labels", "det_jupyter.failure")
_METRICS_AT_ONCE, _OTHERS_AT_ONCE = 1000, 100  # MLflow's limits
_LONGEST_VALUE = 5000
_MOST_FILES, _LONGEST_FILE = 100, 1_000_000
_STATUS: Mapping[RunStatus, str] = {
    "waiting": "SCHEDULED",
    "running": "RUNNING",
    "completed": "FINISHED",
    "canceled": "KILLED",
    "failed": "FAILED",
}


@dataclass(slots=True)
class _Run:
    """A run of MLflow, as this process knows it."""

    id: str
    steps: dict[str, int] = field(default_factory=dict)  # the last of each metric that it has
    params: set[str] = field(default_factory=set)  # that it has
    tags: dict[str, str] = field(default_factory=dict)  # that it has
    status: str = ""  # that this process has set

    def stored(self) -> dict[str, Any]:
        """Return what the master stores of it."""
        return {"run_id": self.id, "steps": self.steps}


class MlflowSender:
    """Sends to one experiment of one MLflow.

    Args:
        tracking_uri: Its address, with what is secret in it.
        shown_as: Its address, without.
        experiment: Name of the experiment there.
        source: The master.
        secrets: Texts that no message may contain.
    """

    def __init__(
        self,
        *,
        tracking_uri: str,
        shown_as: str,
        experiment: str,
        source: Source,
        secrets: Sequence[str] = (),
    ) -> None:
        parts = urlsplit(tracking_uri)
        own = [unquote(each) for each in (parts.username, parts.password) if each]
        self._secrets = [*secrets, parts.username or "", parts.password or "", *own]
        self._shown_as = shown_as
        self._name = experiment
        self._source = source
        self._client = MlflowClient(tracking_uri=tracking_uri)
        self._experiment_id = ""
        self._runs: dict[tuple[int, int], _Run] = {}

    def send(self, work: TrackerWork) -> None:
        """Send what is new of an experiment, and have its position advanced."""
        with self._explaining():
            for items in self._source.pages(work.experiment_id, work.seq):
                runs = self._send_page(work, items)
                self._source.advance(work, items[-1].seq, runs)

    def _send_page(
        self, work: TrackerWork, items: Sequence[FeedItem]
    ) -> dict[int, dict[str, Any]]:
        by_trial: dict[int, list[Point]] = {}
        for item in items:
            if item.trial_id is not None:
                by_trial.setdefault(item.trial_id, []).extend(points_in(item))
        if any("config" in item.data for item in items if item.kind == "experiment"):
            known = {trial_id for number, trial_id in self._runs if number == work.id}
            for trial_id in work.runs.keys() | known:  # labels, the description may have changed
                by_trial.setdefault(trial_id, [])
        stored = {}
        for trial_id, points in by_trial.items():
            try:
                facts = self._source.facts(work.experiment_id, trial_id)
            except NotFound:  # deleted meanwhile
                continue
            run = self._run_of(work, trial_id, facts)
            self._send_points(run, points)
            self._send_facts(run, facts)
            stored[trial_id] = run.stored()
        return stored

    # runs

    def _run_of(self, work: TrackerWork, trial_id: int, facts: RunFacts) -> _Run:
        """Return the run of a trial; it is made if there is none."""
        if (known := self._runs.get((work.id, trial_id))) is not None:
            return known
        key = f"{work.key}.{trial_id}"
        stored = work.runs.get(trial_id, {})
        if run_id := stored.get("run_id") or self._find_run(key):
            run = self._read_back(run_id)
            run.steps = {**stored.get("steps", {}), **run.steps}
        else:
            run = _Run(self._make_run(key, facts))
        if _CODE not in run.tags:  # also if the process that made the run was killed
            self._send_code(run, work.experiment_id)
        self._runs[work.id, trial_id] = run
        return run

    def _read_back(self, run_id: str) -> _Run:
        """Return what a run has: a process that sent it may have ended before it said so."""
        data = self._client.get_run(run_id).to_proto().data
        return _Run(
            run_id,
            steps={metric.key: metric.step for metric in data.metrics},  # the last of each
            params={param.key for param in data.params},
            tags={tag.key: tag.value for tag in data.tags},
        )

    def _find_run(self, key: str) -> str | None:
        runs = self._client.search_runs(
            [self._experiment()], filter_string=f"tags.`{_KEY}` = '{key}'", max_results=1
        )
        return runs[0].info.run_id if runs else None

    def _make_run(self, key: str, facts: RunFacts) -> str:
        made = self._client.create_run(
            self._experiment(),
            start_time=int(facts.began_at * 1000),
            run_name=facts.name,
            tags={_KEY: key, "mlflow.source.name": facts.notebook, "mlflow.source.type": "JOB"},
        )
        run_id: str = made.info.run_id
        return run_id

    def _experiment(self) -> str:
        if not self._experiment_id:
            found = self._client.get_experiment_by_name(self._name)
            if found is None:
                try:
                    self._experiment_id = self._client.create_experiment(self._name)
                except mlflow.exceptions.MlflowException:  # made by another meanwhile
                    found = self._client.get_experiment_by_name(self._name)
                    if found is None:
                        raise
            if found is not None:
                self._experiment_id = found.experiment_id
        return self._experiment_id

    # contents

    def _send_points(self, run: _Run, points: Sequence[Point]) -> None:
        named = [point._replace(key=plain_name(point.key)) for point in points]
        steps = dict(run.steps)
        new = take_new(named, steps)
        for first in range(0, len(new), _METRICS_AT_ONCE):
            some = new[first : first + _METRICS_AT_ONCE]
            metrics = [Metric(p.key, p.value, int(p.at * 1000), p.step) for p in some]
            self._client.log_batch(run.id, metrics=metrics)
            take_new(some, run.steps)

    def _send_facts(self, run: _Run, facts: RunFacts) -> None:
        tags = tags_of(facts)
        tags |= {name: "" for name in _CLEARED if name in run.tags and name not in tags}
        params = {plain_name(name): str(value) for name, value in facts.params.items()}
        new_params = [
            Param(name, value[:_LONGEST_VALUE])
            for name, value in params.items()
            if name not in run.params
        ]
        new_tags = [RunTag(*pair) for pair in tags.items() if run.tags.get(pair[0]) != pair[1]]
        for some_params, some_tags in _in_parts(new_params, new_tags):
            self._client.log_batch(run.id, params=some_params, tags=some_tags)
        run.params |= params.keys()
        run.tags |= tags
        status = _STATUS[facts.status]
        if status != run.status:
            ended = facts.status in ("completed", "canceled", "failed")
            if ended:
                end_ms = None if facts.ended_at is None else int(facts.ended_at * 1000)
                self._client.set_terminated(run.id, status, end_ms)
            else:
                self._client.update_run(run.id, status=status)
            run.status = status

    def _send_code(self, run: _Run, experiment_id: int) -> None:
        """Store the code with a new run; where that is not possible, say where it is."""
        files = list(self._source.code(experiment_id).items())
        kept = [each for each in files if len(each[1]) <= _LONGEST_FILE][:_MOST_FILES]
        try:
            for name, text in kept:
                self._client.log_text(run.id, text, f"code/{code_file(name)}")
            where = "among the artifacts, in code/" if files else "there is none"
            if len(kept) < len(files):
                where += f": {len(kept)} of {len(files)} files"
        except Exception as error:  # of whatever library its store of artifacts needs
            logger.warning("code of experiment=%d: %s", experiment_id, type(error).__name__)
            where = "with the experiment, on the computer that it was submitted on"
        self._client.set_tag(run.id, _CODE, where)
        run.tags[_CODE] = where

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise the library's errors as ours, without secrets."""
        try:
            yield
        except mlflow.exceptions.MlflowException as error:
            cause = _request_error(error)
            if cause is not None:
                raise self._problem_of(cause) from None
            status = error.get_http_status_code()
            message = without_secrets(str(error), self._secrets)
            if status in (401, 403):
                raise Unreachable(f"{self._shown_as} refuses the credentials: {message}") from None
            if status in (408, 425, 429):
                raise Unreachable(f"{self._shown_as} has failed: {message}") from None
            if status >= 500:  # it may fail at this experiment only
                raise Refused(f"{self._shown_as} has failed: {message}") from None
            raise Refused(f"{self._shown_as} refuses: {message}") from None
        except requests.RequestException as error:
            raise self._problem_of(error) from None

    def _problem_of(self, error: BaseException) -> Unreachable | Refused:
        if isinstance(error, requests.Timeout):
            return Unreachable(f"{self._shown_as} does not answer")
        if isinstance(error, requests.exceptions.RetryError):  # perhaps at this experiment only
            return Refused(f"{self._shown_as} has failed: it answers with errors of its own")
        return Unreachable(f"{self._shown_as} cannot be reached")


def _request_error(error: BaseException) -> BaseException | None:
    """Return the failed request that an error was raised for, if it was."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, requests.RequestException):
        seen = seen.__cause__ or seen.__context__
    return seen


def _in_parts(
    params: Sequence[Param], tags: Sequence[RunTag]
) -> Iterator[tuple[Sequence[Param], Sequence[RunTag]]]:
    for first in range(0, max(len(params), len(tags)), _OTHERS_AT_ONCE):
        part = slice(first, first + _OTHERS_AT_ONCE)
        yield params[part], tags[part]


def tags_of(facts: RunFacts) -> dict[str, str]:
    """Return the tags of a run."""
    tags = {f"det_jupyter.{name}": text for name, text in facts.facts.items()}
    if facts.description:
        tags["mlflow.note.content"] = facts.description[:_LONGEST_VALUE]
    return tags
