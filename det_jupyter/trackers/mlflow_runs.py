"""The runs that MLflow has of our trials: read back, found again by a tag, and created.

A process reads each run back before it first uses it: the server may have lost the run, or a user
may have deleted it, which moves it to MLflow's trash.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the master tries again
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # it would send usage data to MLflow's makers

import mlflow.exceptions
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, ViewType

from det_jupyter.trackers.contents import Last, RunFacts
from det_jupyter.trackers.service import TrackerRefused

_KEY = "det_jupyter.key"  # the tag by which a run is found again
_ABSENT = "RESOURCE_DOES_NOT_EXIST"


@dataclass(slots=True, kw_only=True)
class MlflowRun:
    """A run of MLflow, as this process has read or created it."""

    id: str
    artifacts: str = ""  # URI of the folder with its artifacts
    is_deleted: bool = False  # it is in MLflow's trash
    replaces: str = ""  # the trial's earlier run, which is lost
    last: dict[str, Last] = field(default_factory=dict)  # the last point of each of its metrics
    params: set[str] = field(default_factory=set)  # names of its parameters
    tags: dict[str, str] = field(default_factory=dict)  # its tags
    status: str = ""  # the state that this process has set

    def stored(self) -> dict[str, Any]:
        """Return the data that the master stores of this run."""
        return {
            "run_id": self.id,
            "last": self.last,
            "is_deleted": self.is_deleted,
            "replaces": self.replaces,
        }


class Runs:
    """The runs in one experiment of one MLflow.

    Args:
        client: The client of MLflow.
        experiment: Name of the experiment there.
        shown_as: The address of MLflow, without secrets.
    """

    def __init__(self, client: MlflowClient, *, experiment: str, shown_as: str) -> None:
        self._client = client
        self._name = experiment
        self._shown_as = shown_as

    def read(self, run_id: str) -> MlflowRun | None:
        """Return a run with its parameters, tags and last points; None: it does not exist.

        They are read from MLflow: an earlier process may have sent data and ended before it could
        report that to the master.
        """
        try:
            found = self._client.get_run(run_id)
        except mlflow.exceptions.MlflowException as error:
            if error.error_code == _ABSENT:
                return None
            raise
        data = found.to_proto().data
        return MlflowRun(
            id=run_id,
            artifacts=found.info.artifact_uri,
            is_deleted=found.info.lifecycle_stage == LifecycleStage.DELETED,
            last={metric.key: (metric.step, metric.value) for metric in data.metrics},
            params={param.key for param in data.params},
            tags={tag.key: tag.value for tag in data.tags},
        )

    def find_or_make(self, key: str, facts: RunFacts) -> MlflowRun:
        """Return the run with a trial's tag, even from the trash; create it if there is none.

        Raises:
            TrackerRefused: The experiment is deleted in MLflow.
        """
        experiment_id = self.experiment()
        found = self._client.search_runs(
            [experiment_id],
            filter_string=f"tags.`{_KEY}` = '{key}'",
            run_view_type=ViewType.ALL,
            max_results=1,
        )
        run = self.read(found[0].info.run_id) if found else None
        if run is not None:
            return run
        source = {"mlflow.source.name": facts.notebook, "mlflow.source.type": "JOB"}
        made = self._client.create_run(
            experiment_id,
            start_time=int(facts.began_at * 1000),
            run_name=facts.name,
            tags={_KEY: key, **source},
        )
        return MlflowRun(id=made.info.run_id, artifacts=made.info.artifact_uri)

    def experiment(self) -> str:
        """Return the id of the experiment in MLflow; create it if it does not exist.

        The id is not cached: a server that begins with an empty database assigns other ids.

        Raises:
            TrackerRefused: The experiment is deleted in MLflow.
        """
        found = self._client.get_experiment_by_name(self._name)
        if found is None:
            try:
                made: str = self._client.create_experiment(self._name)
                return made
            except mlflow.exceptions.MlflowException:  # created by another process meanwhile
                found = self._client.get_experiment_by_name(self._name)
                if found is None:
                    raise
        if found.lifecycle_stage == LifecycleStage.DELETED:
            raise TrackerRefused(
                f"the experiment {self._name} is deleted at {self._shown_as}; restore it there "
                f"(`mlflow experiments restore -x {found.experiment_id}`), or name another one"
            )
        number: str = found.experiment_id
        return number
