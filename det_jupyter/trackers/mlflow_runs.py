"""The runs that MLflow has of our trials: read back, found again by a tag, and made.

They are looked at anew when the process meets one for the first time, since the server may have
lost it, or a user may have deleted it there, which puts it into MLflow's trash.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the master tries again
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # it would report to MLflow's makers

import mlflow.exceptions
from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, ViewType

from det_jupyter.trackers.contents import Last, RunFacts
from det_jupyter.trackers.service import Refused

_KEY = "det_jupyter.key"  # the tag by which a run is found again
_ABSENT = "RESOURCE_DOES_NOT_EXIST"


@dataclass(slots=True, kw_only=True)
class Run:
    """A run of MLflow, as this process has read it or made it."""

    id: str
    artifacts: str = ""  # the URI below which its artifacts are
    is_deleted: bool = False  # it is in MLflow's trash
    replaces: str = ""  # the run of the trial that was there before
    last: dict[str, Last] = field(default_factory=dict)  # of each metric that it has
    params: set[str] = field(default_factory=set)  # that it has
    tags: dict[str, str] = field(default_factory=dict)  # that it has
    status: str = ""  # that this process has set

    def stored(self) -> dict[str, Any]:
        """Return what the master stores of it."""
        return {
            "run_id": self.id,
            "last": self.last,
            "is_deleted": self.is_deleted,
            "replaces": self.replaces,
        }


class Runs:
    """The runs in one experiment of one MLflow.

    Args:
        client: MLflow's.
        experiment: Name of the experiment there.
        shown_as: The address of MLflow, without secrets.
    """

    def __init__(self, client: MlflowClient, *, experiment: str, shown_as: str) -> None:
        self._client = client
        self._name = experiment
        self._shown_as = shown_as

    def read(self, run_id: str) -> Run | None:
        """Return a run with what it has; None: it is not there.

        A process that sent to it may have ended before it could report that.
        """
        try:
            found = self._client.get_run(run_id)
        except mlflow.exceptions.MlflowException as error:
            if error.error_code == _ABSENT:
                return None
            raise
        data = found.to_proto().data
        return Run(
            id=run_id,
            artifacts=found.info.artifact_uri,
            is_deleted=found.info.lifecycle_stage == LifecycleStage.DELETED,
            last={metric.key: (metric.step, metric.value) for metric in data.metrics},
            params={param.key for param in data.params},
            tags={tag.key: tag.value for tag in data.tags},
        )

    def find_or_make(self, key: str, facts: RunFacts) -> Run:
        """Return the run with the tag of a trial, also a deleted one; it is made if there is none.

        Raises:
            Refused: The experiment there is deleted.
        """
        experiment_id = self._experiment()
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
        return Run(id=made.info.run_id, artifacts=made.info.artifact_uri)

    def _experiment(self) -> str:
        """Return the number of the experiment there, which is made if it is absent.

        It is not kept: a server that begins with an empty database gives other numbers.
        """
        found = self._client.get_experiment_by_name(self._name)
        if found is None:
            try:
                made: str = self._client.create_experiment(self._name)
                return made
            except mlflow.exceptions.MlflowException:  # made by another meanwhile
                found = self._client.get_experiment_by_name(self._name)
                if found is None:
                    raise
        if found.lifecycle_stage == LifecycleStage.DELETED:
            raise Refused(
                f"the experiment {self._name} is deleted at {self._shown_as}; restore it there "
                f"(`mlflow experiments restore -x {found.experiment_id}`), or name another one"
            )
        number: str = found.experiment_id
        return number
