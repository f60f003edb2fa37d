"""`Determined`: the door to the master, of which each user has one. It needs no login."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from det_jupyter.client import Client
from det_jupyter.client.handles.models import create_model_in, find_models
from det_jupyter.client.handles.queries import make_query
from det_jupyter.client.submitting.drafts import read_file
from det_jupyter.client.submitting.submission import prepare, submit
from det_jupyter.connection import connect
from det_jupyter.errors import NotFound
from determined._lacking import Handle
from determined.experimental.client._checkpoint import Checkpoint
from determined.experimental.client._experiment import Experiment
from determined.experimental.client._model import Model, ModelSortBy, sorted_models
from determined.experimental.client._sorting import OrderBy
from determined.experimental.client._trial import Trial

_log = logging.getLogger("determined")


class Determined(Handle):
    """Finds and makes experiments and models. Starts the master if there is none.

    Args:
        master, user, password, token, cert_path, cert_name, noverify: Have no meaning here, where
            a master is its user's own; a notice says so.
    """

    def __init__(
        self,
        master: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        cert_path: str | None = None,
        cert_name: str | None = None,
        noverify: bool = False,
    ) -> None:
        note_ignored(master=master, user=user, password=password, token=token)
        note_ignored(cert_path=cert_path, cert_name=cert_name, noverify=noverify)

    def create_experiment(
        self,
        config: str | Path | Mapping[str, Any],
        model_dir: str | Path | None = None,
        includes: Iterable[str | Path] | None = None,
        parent_id: int | None = None,
        project_id: int | None = None,
        template: str | None = None,
    ) -> Experiment:
        """Submit an experiment, and return its handle at once.

        Args:
            config: The configuration, or the file that holds it.
            model_dir: The context directory: ranks work in a copy of it. Without one they work in
                the present folder.
            includes: More files and folders for the copy.
            parent_id, project_id: Have no meaning here.
            template: Name of the template to lay the configuration over.

        Raises:
            ConfigError: Everything that is wrong with the configuration.
        """
        note_ignored(parent_id=parent_id, project_id=project_id)
        if isinstance(config, Mapping):
            file, text = None, yaml.safe_dump(dict(config), sort_keys=False)
        else:
            file, text = Path(config), read_file(Path(config))
        prepared = prepare(
            client(),
            text,
            context=model_dir,
            includes=[Path(each) for each in includes or ()],
            file=file,
            template=template,
        )
        for notice in prepared.notices:
            _log.warning("%s", notice)
        return Experiment(client(), submit(client(), prepared).id)

    def get_experiment(self, experiment_id: int) -> Experiment:
        """Return an experiment.

        Raises:
            NotFound: There is none of this number.
        """
        return Experiment(client(), client().experiment(int(experiment_id)).id)

    def list_experiments(
        self,
        sort_by: Any = None,
        order_by: Any = None,
        experiment_ids: Iterable[int] | None = None,
        labels: Iterable[str] | None = None,
        users: Iterable[str] | None = None,
        states: Iterable[Any] | None = None,
        name: str | None = None,
        project_id: int | None = None,
    ) -> list[Experiment]:
        """Return the experiments that match, oldest first; archived ones too.

        Args:
            sort_by, order_by: Have no meaning here.
            experiment_ids: Only these.
            labels: With all of these.
            users, project_id: Have no meaning here.
            states: In one of these.
            name: Of this name.
        """
        note_ignored(sort_by=sort_by, order_by=order_by, users=users, project_id=project_id)
        named = [str(getattr(state, "value", state)) for state in states or ()]
        query = make_query(
            name=name or "", label=labels, state=named, archived=True, sort="oldest"
        )
        found = [row.id for row in client().find(query).rows]
        wanted = None if experiment_ids is None else {*experiment_ids}
        return [Experiment(client(), each) for each in found if wanted is None or each in wanted]

    iter_experiments = list_experiments
    get_experiments = list_experiments

    def get_trial(self, trial_id: int) -> Trial:
        """Return a trial.

        Raises:
            NotFound: There is none of this number.
        """
        return Trial(client(), client().trial(int(trial_id)).id, self.get_experiment)

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Return a checkpoint, of any experiment.

        Raises:
            NotFound: There is none of this uuid.
        """
        view = client().checkpoint(uuid)
        hparams = client().trial(view.trial_id).hparams
        return Checkpoint(view, Path(client().session.info.data_dir), hparams)

    def create_model(
        self,
        name: str,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        labels: Iterable[str] | None = None,
        workspace_name: str | None = None,
    ) -> Model:
        """Create a model of the registry; `workspace_name` has no meaning here.

        Raises:
            Conflict: There is a model of this name.
        """
        note_ignored(workspace_name=workspace_name)
        view = create_model_in(
            client(), name, description=description, metadata=metadata, labels=list(labels or ())
        )
        return Model(client(), view.name)

    def get_model(self, identifier: str | int) -> Model:
        """Return a model by its name or its number.

        Raises:
            NotFound: There is none.
        """
        if isinstance(identifier, str):
            return Model(client(), client().model(identifier).name)
        return self.get_model_by_id(identifier)

    def get_model_by_id(self, model_id: int) -> Model:
        """Return a model by its number.

        Raises:
            NotFound: There is none.
        """
        for view in client().models():
            if view.id == model_id:
                return Model(client(), view.name)
        raise NotFound(f"there is no model with the number {model_id}")

    def list_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: OrderBy = OrderBy.ASCENDING,
        name: str = "",
        description: str = "",
        model_id: int = 0,
        workspace_names: list[str] | None = None,
        workspace_ids: list[int] | None = None,
    ) -> list[Model]:
        """Return the models that match, archived ones too.

        Args:
            sort_by, order_by: Their order.
            name: In their names.
            description: In their descriptions.
            model_id: Of this number.
            workspace_names, workspace_ids: Have no meaning here.
        """
        note_ignored(workspace_names=workspace_names, workspace_ids=workspace_ids)
        found = [
            view
            for view in find_models(client(), archived=True)
            if name.lower() in view.name.lower()
            and description.lower() in view.description.lower()
            and model_id in (0, view.id)
        ]
        return [Model(client(), view.name) for view in sorted_models(found, sort_by, order_by)]

    get_models = list_models

    def get_model_labels(self) -> list[str]:
        """Return the labels of all models, the most frequent first."""
        labels = [label for view in client().models() for label in view.labels]
        return sorted({*labels}, key=lambda label: (-labels.count(label), label))


@cache
def client() -> Client:
    """Return this process's client of the master; starts the master if there is none."""
    return Client(connect())


def note_ignored(**given: Any) -> None:
    """Say once of each argument that was given that it has no meaning here."""
    for name, value in given.items():
        if value:
            note_once(f"{name}=")


@cache
def note_once(what: str) -> None:
    """Say that something has no meaning here."""
    _log.warning("%s has no meaning in det_jupyter, whose master is your own: ignored", what)
