"""Sends experiments to MLflow: a run for each trial.

MLflow's databases ignore a point of a metric that they already have; its other stores append the
point again. So a process reads the last step of each metric back before it first uses a run, and
sends only later ones. It looks for a run by its tag before it creates one.

    the run of a trial       what is sent
    exists                   what is new
    is in MLflow's trash     nothing; when it is restored, all that is new since
    does not exist any more  all points from the beginning, to a new run
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import mlflow.exceptions
import requests
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from det_jupyter.contract.messages import FeedItem, TrackerProgress, TrackerWork
from det_jupyter.contract.values.addresses import is_url, secrets_in
from det_jupyter.errors import NotFound
from det_jupyter.trackers.contents import (
    Point,
    RunFacts,
    RunStatus,
    code_file,
    is_misplaced,
    plain_name,
    points_in,
    remark_on,
    take_new,
)
from det_jupyter.trackers.mlflow_problems import Problems, find_request_error
from det_jupyter.trackers.mlflow_runs import MlflowRun, Runs
from det_jupyter.trackers.service import MasterFeed

logger = logging.getLogger(__name__)

_CODE = "det_jupyter.code"  # the tag with the place of the code; set last
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


@dataclass(frozen=True, slots=True)
class _Trial:
    """A trial that has something new to send."""

    work: TrackerWork
    id: int
    facts: RunFacts
    seq: int  # number of the first feed item that is sent now

    @property
    def key(self) -> tuple[int, int]:
        """The key of its run in this process."""
        return self.work.id, self.id

    @property
    def tag(self) -> str:
        """The tag by which its run is found again."""
        return f"{self.work.key}.{self.id}"


class MlflowSender:
    """Sends to one experiment of one MLflow.

    Args:
        tracking_uri: MLflow's address, with secrets.
        shown_as: MLflow's address, without secrets.
        experiment: Name of the experiment in MLflow.
        source: Reads from the master.
        secrets: Credentials of the environment, which no message may contain.
        gets_credentials: Whether MLflow gets the user's credentials, as the user has named the
            address.
    """

    def __init__(
        self,
        *,
        tracking_uri: str,
        shown_as: str,
        experiment: str,
        source: MasterFeed,
        secrets: Sequence[str] = (),
        gets_credentials: bool = True,
    ) -> None:
        self._name = experiment
        self._source = source
        self._tracking_uri, self._gets_credentials = tracking_uri, gets_credentials
        self._client = MlflowClient(tracking_uri=tracking_uri)
        self._known = Runs(self._client, experiment=experiment, shown_as=shown_as)
        self._problems = Problems(
            shown_as=shown_as,
            is_server=is_url(tracking_uri),
            secrets=[*secrets, *secrets_in(tracking_uri)],
            gets_credentials=gets_credentials,
            has_credentials=bool(secrets) or "@" in urlsplit(tracking_uri).netloc,
            fails_at_all=self._fails_at_all,
        )
        self._runs: dict[tuple[int, int], MlflowRun] = {}

    def send(self, work: TrackerWork) -> None:
        """Send what is new of an experiment, and store its new position in the master."""
        try:
            self._send(work)
        except (mlflow.exceptions.MlflowException, requests.RequestException) as error:
            raise self._problems.of(error) from None

    def _send(self, work: TrackerWork) -> None:
        if not work.seq:  # all of it, perhaps again at the user's request: read the runs
            self._runs = {key: run for key, run in self._runs.items() if key[0] != work.id}
        seq = work.seq
        for items in self._source.pages(work.experiment_id, seq):
            runs = self._send_page(work, items)
            last = items[-1].seq
            progress = TrackerProgress(seq=last, runs=runs, remark=self._remark(work))
            self._source.advance(work, seq, progress)
            seq = last

    def _send_page(
        self, work: TrackerWork, items: Sequence[FeedItem]
    ) -> dict[int, dict[str, Any]]:
        """Send the trials that the items are about; return the data to store for each trial."""
        by_trial: dict[int, list[Point]] = {}
        for item in items:
            if item.trial_id is not None:
                by_trial.setdefault(item.trial_id, []).extend(points_in(item))
        if any(item.kind == "config" for item in items):
            known = {trial_id for number, trial_id in self._runs if number == work.id}
            for trial_id in work.runs.keys() | known:  # labels, the description may have changed
                by_trial.setdefault(trial_id, [])
        stored = {}
        for trial_id, points in by_trial.items():
            try:
                facts = self._source.facts(work.experiment_id, trial_id)
            except NotFound:  # deleted meanwhile
                continue
            trial = _Trial(work, trial_id, facts, items[0].seq)
            stored[trial_id] = self._send_trial(trial, points).stored()
        return stored

    def _send_trial(self, trial: _Trial, points: Sequence[Point]) -> MlflowRun:
        """Send what is new of a trial, and return its run."""
        known = self._runs.get(trial.key)
        if known is None or known.is_deleted:
            return self._send_run(trial, self._run_of(trial), points)
        try:
            return self._send_run(trial, known, points)
        except mlflow.exceptions.MlflowException as error:
            if find_request_error(error) or self._is_active(known.id):
                raise
        return self._send_run(trial, self._run_of(trial), points)  # lost or deleted since then

    def _send_run(self, trial: _Trial, run: MlflowRun, points: Sequence[Point]) -> MlflowRun:
        if not run.is_deleted:
            self._send_points(run, points)
            self._send_facts(run, trial.facts)
        return run

    def _remark(self, work: TrackerWork) -> str:
        runs = {trial: run.stored() for (own, trial), run in self._runs.items() if own == work.id}
        return remark_on({**work.runs, **runs})

    # runs

    def _run_of(self, trial: _Trial) -> MlflowRun:
        """Return the run of a trial as MLflow has it; create it if there is none.

        A run that lacks earlier points, as it is new or was in the trash, gets these first.
        """
        before = self._runs.get(trial.key)
        stored = before.stored() if before is not None else trial.work.runs.get(trial.id, {})
        former_id, was_deleted = stored.get("run_id", ""), stored.get("is_deleted", False)
        run = self._known.read(former_id) if former_id else None
        if run is None and was_deleted and trial.work.seq:  # the trash was emptied
            run = MlflowRun(id=former_id, is_deleted=True)
        run = run or self._known.find_or_make(trial.tag, trial.facts)
        is_other = run.id != former_id
        run.replaces = former_id if is_other else stored.get("replaces", "")
        if run.is_deleted:
            self._runs[trial.key] = run
            return run
        if former_id and (is_other or was_deleted):
            self._send_missed(trial, run)
        elif trial.work.seq:
            former = {key: (step, None) for key, step in stored.get("steps", {}).items()}
            of_process = {key: tuple(point) for key, point in stored.get("last", {}).items()}
            run.last = {**former, **of_process, **run.last}
        if _CODE not in run.tags:  # also when the process that created the run was killed
            self._send_code(run, trial.work.experiment_id)
        self._runs[trial.key] = run
        return run

    def _is_active(self, run_id: str) -> bool:
        run = self._known.read(run_id)
        return run is not None and not run.is_deleted

    def _send_missed(self, trial: _Trial, run: MlflowRun) -> None:
        """Send the points of a trial that come before the items of this page."""
        for items in self._source.pages(trial.work.experiment_id, 0):
            earlier = [each for each in items if each.seq < trial.seq]
            own = [each for each in earlier if each.trial_id == trial.id]
            self._send_points(run, [point for item in own for point in points_in(item)])
            if len(earlier) < len(items):
                return

    # contents

    def _send_points(self, run: MlflowRun, points: Sequence[Point]) -> None:
        named = [point._replace(key=plain_name(point.key)) for point in points]
        new = take_new(named, dict(run.last))
        for first in range(0, len(new), _METRICS_AT_ONCE):
            some = new[first : first + _METRICS_AT_ONCE]
            metrics = [Metric(p.key, p.value, int(p.at * 1000), p.step) for p in some]
            self._client.log_batch(run.id, metrics=metrics)
            take_new(some, run.last)

    def _send_facts(self, run: MlflowRun, facts: RunFacts) -> None:
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

    def _send_code(self, run: MlflowRun, experiment_id: int) -> None:
        """Store the code with a new run, and set a tag with the place of the code.

        The code is not written to a folder of this computer that a server chooses, unless the user
        has named that server: a configuration alone may name any server.
        """
        files = self._source.code(experiment_id)
        where = "with the experiment, on the computer that it was submitted on"
        if self._gets_credentials or not is_misplaced(run.artifacts, self._tracking_uri):
            try:
                where = self._store_code(run, files)
            except Exception as error:  # of any library that the artifact store needs
                logger.warning("code of experiment=%d: %s", experiment_id, type(error).__name__)
        self._client.set_tag(run.id, _CODE, where)
        run.tags[_CODE] = where

    def _store_code(self, run: MlflowRun, files: Mapping[str, str]) -> str:
        """Store the code among the artifacts of a run; return its place in words."""
        kept = [each for each in files.items() if len(each[1]) <= _LONGEST_FILE][:_MOST_FILES]
        for name, text in kept:
            self._client.log_text(run.id, text, f"code/{code_file(name)}")
        where = "among the artifacts, in code/" if files else "there is none"
        return f"{where}: {len(kept)} of {len(files)} files" if len(kept) < len(files) else where

    def _fails_at_all(self) -> bool:
        try:
            self._client.get_experiment_by_name(self._name)
        except (mlflow.exceptions.MlflowException, requests.RequestException):
            return True
        return False


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
