"""`import_determined`: stores what a master of Determined, or its dump, has (records.py).

An experiment with its trials and checkpoints is stored by one request, its metrics and logs by
the next ones, and only then the next experiment. So of those that are here already, only the
newest may be incomplete: a repeated import completes it, and reads nothing of the others.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from det_jupyter.client.client import Client
from det_jupyter.client.imports.determined.code import capsule_from
from det_jupyter.client.imports.determined.configuration import parse_found
from det_jupyter.client.imports.determined.records import (
    DeterminedSource,
    FoundCheckpoint,
    FoundExperiment,
    FoundModel,
    FoundReport,
    FoundTrial,
    FoundVersion,
    Unsound,
    refusing,
)
from det_jupyter.client.imports.whole_experiments import (
    TrialData,
    import_whole,
    num_values,
    validations,
)
from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    Archive,
    CreateModel,
    ExperimentQuery,
    ImportedCheckpoint,
    ImportedTrial,
    ImportExperiment,
    ModelView,
    RegisterVersion,
)
from det_jupyter.contract.values.text import printable, shortened
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound
from det_jupyter.storage import folder_at, open_storage, path_of

LABEL = "imported"
_LONGEST = 500  # characters of a reason
KINDS = ("experiments", "trials", "values", "lines", "checkpoints", "models", "versions")
_STATES: dict[str, Literal["COMPLETED", "CANCELED", "ERROR"]] = {
    "COMPLETED": "COMPLETED",
    "ERROR": "ERROR",
}
_IMPORTED_FROM = "imported_from"  # key of a model's metadata
_VERSION = "determined_version"  # key of a version's metadata: its number there


@dataclass(slots=True)
class ImportCounts:
    """How many things of a kind were found, and what became of them."""

    imported: int = 0
    known: int = 0  # here already
    left_out: int = 0

    @property
    def found(self) -> int:
        """The number of all of them."""
        return self.imported + self.known + self.left_out

    def add(self, found: int, imported: int) -> None:
        """Count things, of which the others are here already."""
        self.imported += imported
        self.known += found - imported


@dataclass(frozen=True, slots=True)
class DeterminedImport:
    """The result of an import.

    Args:
        counts: By kind (KINDS); of experiments that were complete, their parts are not counted.
        reasons: Why things were left out, and how many.
        experiments: The numbers here of what was imported now.
        unseen: Folders of checkpoints that do not exist on this computer.
    """

    counts: dict[str, ImportCounts] = field(
        default_factory=lambda: {kind: ImportCounts() for kind in KINDS}
    )
    reasons: Counter[str] = field(default_factory=Counter)
    experiments: list[int] = field(default_factory=list)
    unseen: set[str] = field(default_factory=set)

    def leave_out(self, kind: str, reason: str) -> None:
        """Count a thing that is not imported."""
        self.counts[kind].left_out += 1
        self.reasons[shortened(printable(reason).replace("\n", "; "), _LONGEST)] += 1


def import_determined(
    client: Client, source: DeterminedSource, tell: Callable[[str], None] = lambda _line: None
) -> DeterminedImport:
    """Store all experiments and models of a source that are not here; repeatable.

    Args:
        client: Sends requests to the master.
        source: Determined's master, or its dump.
        tell: Is called with a line about each experiment that is stored.

    Raises:
        DetError: The source cannot be read further; what was stored stays.
    """
    steps = _Import(client, source, tell)
    try:
        for found in source.experiments():
            steps.store(found)
        for model in source.models():
            steps.store_model(model)
    except Unsound as error:
        raise DetError(
            f"{source.name}: it has an experiment or model that is not as Determined 0.38 "
            f"stores it: {error}"
        ) from None
    return steps.result


class _Import:
    def __init__(
        self, client: Client, source: DeterminedSource, tell: Callable[[str], None]
    ) -> None:
        self.result = DeterminedImport()
        self._client = client
        self._source = source
        self._tell = tell
        self._data_dir = Path(client.session.info.data_dir)
        sources = client.find(ExperimentQuery(archived=True)).sources
        self._known = {name: number for number, name in sources.items()}
        own = (number for name, number in self._known.items() if source.cluster_id in name)
        self._newest = max(own, default=0)
        self._is_stored = False  # the experiment, without all of its metrics and logs

    @cached_property
    def _models(self) -> dict[str, ModelView]:
        """The models that are here when the experiments are stored, by name."""
        return {model.name: model for model in self._client.models()}

    def store(self, found: FoundExperiment) -> None:
        """Store an experiment, unless it is here."""
        name = f"experiment {found.id} of Determined's master {self._source.cluster_id}"
        known = self._known.get(name)
        if known is not None and known != self._newest:
            self.result.counts["experiments"].add(1, 0)
            return
        if found.ended_at is None and self._source.is_live:
            self.result.leave_out("experiments", "it is not over there; import again when it is")
            return
        self._is_stored = False
        try:
            trials = list(self._source.trials(found.id))
            if not trials:
                self.result.leave_out("experiments", "it has no trials")
                return
            self._store_with(found, name, trials, is_new=known is None)
        except (Conflict, ConfigError, Unsound) as error:
            if self._is_stored:
                reason = f"further metrics and logs of experiment {found.id} there: {error}"
                self.result.leave_out("values", reason)
            elif known is None:
                self.result.leave_out("experiments", f"experiment {found.id} there: {error}")
            else:  # it was continued here, for example
                self.result.counts["experiments"].add(1, 0)

    def _store_with(
        self, found: FoundExperiment, name: str, trials: Sequence[FoundTrial], *, is_new: bool
    ) -> None:
        most = max(trial.steps_completed for trial in trials)
        settings, notices = parse_found(found.config, [LABEL], most)
        if found.notes:
            notices.append(f"noted there: {found.notes}")
        if found.state not in (*_STATES, "CANCELED"):
            notices.append(f"it was {found.state} when it was imported")
        checkpoints = list(self._checkpoints(found.id, settings))
        request = ImportExperiment(
            key=hashlib.sha256(name.encode()).hexdigest(),
            source=name,
            config=settings.to_document(),
            capsule=capsule_from(
                self._source.code(found.id) if is_new else b"",
                settings,
                BlobStore.of(self._data_dir),
                [f"Imported from {self._source.name}: {name}", *notices],
            ),
            python=sys.executable,
            cwd=os.getcwd(),
            trials=[self._trial(each, found, settings, checkpoints) for each in trials],
            state=_STATES.get(found.state, "CANCELED"),
        )
        totals = {"experiments": 1, "trials": len(trials), "checkpoints": len(checkpoints)}
        totals |= {"values": 0, "lines": 0}

        def data_of(index: int) -> TrialData:
            self._is_stored = True
            data = self._data(trials[index])
            totals["values"] += num_values(data.records)
            totals["lines"] += len(data.lines)
            return data

        stored = import_whole(self._client, request, data_of)
        number, num_new = (
            stored.experiment_id,
            {"values": stored.num_values, "lines": stored.num_lines},
        )
        for kind, num in totals.items():
            self.result.counts[kind].add(num, num_new.get(kind, num if is_new else 0))
        if found.is_archived and not self._client.experiment(number).is_archived:
            self._client.change(Archive(experiment_id=number))
        if is_new or stored.num_values or stored.num_lines:
            self.result.experiments.append(number)
            self._tell(f"Experiment {number} is {name.partition(' of ')[0]} there.")

    def _trial(
        self,
        trial: FoundTrial,
        found: FoundExperiment,
        settings: ExperimentConfig,
        checkpoints: Sequence[tuple[FoundCheckpoint, str]],
    ) -> ImportedTrial:
        measured = self._in_time(trial, ["validation"])
        values = validations(
            (record for each in measured for record in each.records()), settings.searcher.metric
        )
        own = sorted(
            ((each, path) for each, path in checkpoints if each.trial_id == trial.id),
            key=lambda item: (item[0].created_at, item[0].steps_completed),
        )
        state = _STATES.get(trial.state, "CANCELED")
        length = getattr(settings.searcher, "max_length", None)
        return ImportedTrial.built_from(
            trial,
            source=f"trial {trial.id}",
            state=state,
            ended_at=trial.ended_at
            or max((each.at for each in measured), default=trial.created_at),
            validations=values,
            runs=trial.restarts + 1,
            target=length if state == "COMPLETED" else None,
            checkpoints=[
                ImportedCheckpoint.built_from(
                    each,
                    path=path,
                    searcher_metric=values.get(each.steps_completed),
                    is_foreign=True,
                )
                for each, path in own
            ],
        )

    def _checkpoints(
        self, number: int, settings: ExperimentConfig
    ) -> Iterator[tuple[FoundCheckpoint, str]]:
        """Yield the checkpoints of an experiment whose files are there, with their paths."""
        location = settings.checkpoint_storage.location
        storage = None if location is None else open_storage(location, self._data_dir)
        for each in self._source.checkpoints(number):
            if each.state == "DELETED":
                self.result.leave_out("checkpoints", "it was deleted there")
            elif each.state not in ("COMPLETED", "PARTIALLY_DELETED"):
                self.result.leave_out("checkpoints", "it was not completed there")
            elif storage is None:
                self.result.leave_out("checkpoints", "its storage cannot be read here")
            else:
                path = path_of(storage, each.uuid)
                folder = folder_at(path)
                if folder is not None and not folder.is_dir():
                    self.result.unseen.add(storage.location)
                yield each, path

    def _data(self, trial: FoundTrial) -> TrialData:
        reports = self._in_time(trial, trial.groups)
        records = [record for each in reports for record in each.records()]
        return TrialData(records=records, lines=list(self._source.log(trial)))

    def _in_time(self, trial: FoundTrial, groups: Sequence[str]) -> list[FoundReport]:
        found = (each for group in groups for each in self._source.reports(trial, group))
        return sorted(found, key=lambda each: (each.at, each.id))

    def store_model(self, found: FoundModel) -> None:
        """Store a model, and the versions of it that are not here."""
        origin = f"Determined's master {self._source.cluster_id}"
        model = self._models.get(found.name)
        if model is not None and model.metadata.get(_IMPORTED_FROM) != origin:
            self.result.leave_out("models", f"a model {found.name} is here already, of your own")
            return
        if model is None:
            fields = {name: getattr(found, name) for name in ("description", "notes", "labels")}
            metadata = found.metadata | {_IMPORTED_FROM: origin}
            try:
                with refusing():
                    request = CreateModel(name=found.name, metadata=metadata, **fields)
                self._client.change(request)
            except (Conflict, ConfigError, Unsound) as error:
                self.result.leave_out("models", f"model {found.name}: {error}")
                return
        self.result.counts["models"].add(1, int(model is None))
        here = {
            version.metadata.get(_VERSION) for version in (() if model is None else model.versions)
        }
        for version in found.versions:
            if version.number in here:
                self.result.counts["versions"].add(1, 0)
            else:
                self._store_version(found.name, version)

    def _store_version(self, model: str, found: FoundVersion) -> None:
        texts = {name: getattr(found, name) for name in ("name", "comment", "notes", "labels")}
        metadata = found.metadata | {_VERSION: found.number}
        try:
            with refusing():
                request = RegisterVersion(model=model, uuid=found.uuid, metadata=metadata, **texts)
            self._client.change(request)
        except (Conflict, ConfigError, NotFound, Unsound) as error:
            self.result.leave_out("versions", f"version {found.number} of model {model}: {error}")
        else:
            self.result.counts["versions"].add(1, 1)
