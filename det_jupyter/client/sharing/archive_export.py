"""`Experiment.export_archive`: writes an experiment as one file for others."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from det_jupyter._version import __version__
from det_jupyter.client.client import Client
from det_jupyter.client.following.log_lines import read
from det_jupyter.client.imports.whole_experiments import MetricsRecord, validations
from det_jupyter.client.sharing.archive_format import (
    FORMAT,
    MANIFEST,
    VERSION,
    Manifest,
    Member,
    blob_name,
    checkpoint_folder,
    is_inside,
    logs_name,
    metrics_name,
    shareable,
)
from det_jupyter.client.sharing.known_secrets import known_secrets
from det_jupyter.client.sharing.new_file import replacing
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.messages import (
    Capsule,
    CheckpointView,
    ExperimentView,
    ImportedCheckpoint,
    ImportedLine,
    ImportedTrial,
    ImportExperiment,
    LogQuery,
    TrialView,
)
from det_jupyter.contract.messages.requests import MAX_IMPORTED_LINE
from det_jupyter.contract.messages.status import in_words
from det_jupyter.contract.run.journal import Progress, parse_line, to_line
from det_jupyter.contract.trial.captured import blobs_of
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.redacting import Redactor, encodings
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound, Problem
from det_jupyter.storage import METADATA_FILE, find_checkpoint

Choice = Literal["best", "all", "none"]
CHOICES: tuple[Choice, ...] = ("best", "all", "none")
_PART_BYTES = 1024 * 1024
_OVER = ("COMPLETED", "CANCELED", "ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An archive that was written.

    Args:
        doubtful: What has texts that look like a secret: the configuration, cells and files.
    """

    path: Path
    size_bytes: int
    num_trials: int
    num_checkpoints: int
    doubtful: list[str]


def export_archive(
    client: Client, experiment_id: int, file: str | Path, checkpoints: Choice = "best"
) -> Exported:
    """Write an experiment to an archive; see `Experiment.export_archive`."""
    if checkpoints not in CHOICES:
        expected = f"got {checkpoints!r}, expected one of {', '.join(CHOICES)}"
        raise ConfigError([Problem("checkpoints", expected)])
    view = client.experiment(experiment_id)
    _check_over(view)
    chosen = _choose(client.checkpoints(view.id), checkpoints, view.direction)
    secrets = known_secrets(client, view)
    path = Path(file).expanduser()
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        writer = _Writer(archive, f"experiment {view.id}", secrets)
        _write(client, view, chosen, writer, Redactor(secrets))
    return Exported(
        path=path,
        size_bytes=path.stat().st_size,
        num_trials=len(view.trials),
        num_checkpoints=len(chosen),
        doubtful=[*_doubtful(client, view)],
    )


def _doubtful(client: Client, view: ExperimentView) -> Iterator[str]:
    redactor, config = Redactor(), shareable(view.config)
    if redactor.document(config) != config:
        yield "the configuration"
    for name, text in client.code(view.id).items():
        if redactor.text(text) != text:
            yield name


def _check_over(view: ExperimentView) -> None:
    if view.state not in _OVER:
        raise Conflict(
            f"experiment {view.id} is {in_words(view.state)}; one that is over (completed, "
            "canceled or error) can be exported"
        )
    if not view.trials:
        raise Conflict(f"experiment {view.id} has no trial, so there is nothing to export")


def _choose(
    checkpoints: Sequence[CheckpointView], choice: Choice, direction: Direction
) -> list[CheckpointView]:
    kept = [each for each in checkpoints if each.state == "COMPLETED" and choice != "none"]
    if choice == "all" or not kept:
        return kept
    measured = [each for each in kept if each.searcher_metric is not None]
    return [min(measured, key=lambda each: direction.loss(each.searcher_metric))
            if measured else kept[-1]]  # fmt: skip


class _Writer:
    """Writes members, and refuses those that contain a secret.

    Args:
        archive: The file.
        name: The experiment, for messages.
        secrets: What each secret is, by its value.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str, secrets: Mapping[str, str]) -> None:
        self.members: dict[str, Member] = {}
        self._archive = archive
        self._name = name
        self._secrets = {
            form.encode("utf-8", "replace"): what
            for value, what in secrets.items()
            for form in encodings(value)
        }

    def add(self, name: str, parts: Iterable[bytes]) -> None:
        """Write a member.

        Raises:
            Conflict: It contains a secret, or no import would accept its name.
        """
        if not is_inside(name):
            raise Conflict(
                f"{self._name}: {name!r} cannot be in an archive, whose names have no backslash "
                "and no control character; rename the file, or export without checkpoints"
            )
        digest, size, before = hashlib.sha256(), 0, b""
        longest = max(map(len, self._secrets))
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o600 << 16
        with self._archive.open(info, "w", force_zip64=True) as stream:
            for part in parts:
                self._check(name, before + part)
                before = (before + part)[-longest:]
                digest.update(part)
                size += len(part)
                stream.write(part)
        self.members[name] = Member(size_bytes=size, sha256=digest.hexdigest())

    def _check(self, name: str, content: bytes) -> None:
        for secret, what in self._secrets.items():
            if secret in content:
                raise Conflict(
                    f"{self._name}: {name} in the archive would contain {what}, so nothing was "
                    "written; take it out and train again, or unset the variable here if it is "
                    "no secret"
                )


def _write(
    client: Client,
    view: ExperimentView,
    chosen: Sequence[CheckpointView],
    writer: _Writer,
    redactor: Redactor,
) -> None:
    records = _records(client, view)
    trials = []
    for index, trial in enumerate(view.trials):
        lines = _lines(client, trial.id, redactor)
        writer.add(metrics_name(index), [to_line(each).encode() for each in records[trial.id]])
        writer.add(logs_name(index), [f"{line.model_dump_json()}\n".encode() for line in lines])
        own = [each for each in chosen if each.trial_id == trial.id]
        runs = max((line.run for line in lines), default=0)
        trials.append(_trial(trial, view.metric, records[trial.id], runs, own, redactor))
    blobs, capsule = BlobStore.of(client.session.info.data_dir), client.capsule(view.id)
    for digest in sorted(blobs_of(capsule)):
        writer.add(blob_name(digest), _parts(blobs.path(digest)))
    for checkpoint in chosen:
        _add_checkpoint(writer, checkpoint)
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        written_by=__version__,
        experiment=_request(view, capsule, trials),
        members=writer.members,
    )
    writer.add(MANIFEST, [manifest.model_dump_json(indent=1).encode()])


def _records(client: Client, view: ExperimentView) -> Mapping[int, list[MetricsRecord]]:
    """Return the metrics of each trial in the order of time, and its progress."""
    found: defaultdict[int, list[Any]] = defaultdict(list)
    after = 0
    while items := client.items(view.id, after=after):
        after = items[-1].seq
        for item in items:
            if item.kind == "metrics":
                record = {name: value for name, value in item.data.items() if name != "run"}
                found[item.trial_id or 0].append(parse_line(json.dumps(record)))
    for trial in view.trials:
        found[trial.id].append(
            Progress(
                at=trial.ended_at or trial.created_at,
                steps_completed=trial.steps_completed,
                fraction=trial.progress,
            )
        )
    return found


def _lines(client: Client, trial_id: int, redactor: Redactor) -> list[ImportedLine]:
    found = read(partial(client.logs, trial_id), LogQuery(), None)
    return [
        ImportedLine.built_from(line, text=redactor.text(line.text)[:MAX_IMPORTED_LINE])
        for line in found
    ]


def _trial(
    trial: TrialView,
    metric: str,
    records: Sequence[MetricsRecord],
    runs: int,
    checkpoints: Sequence[CheckpointView],
    redactor: Redactor,
) -> ImportedTrial:
    failure = trial.failure and trial.failure.model_copy(
        update={
            "error": redactor.text(trial.failure.error),
            "traceback": redactor.text(trial.failure.traceback),
        }
    )
    return ImportedTrial.built_from(
        trial,
        source=str(trial.id),
        state=trial.state.value,
        ended_at=trial.ended_at or trial.created_at,
        notices=[redactor.text(notice) for notice in trial.notices],
        failure=failure,
        validations=validations(records, metric),
        runs=runs,
        checkpoints=[
            ImportedCheckpoint.built_from(
                each, path=checkpoint_folder(each.uuid), is_foreign=False
            )
            for each in sorted(checkpoints, key=_by_steps)
        ],
    )


def _by_steps(checkpoint: CheckpointView) -> int:
    return checkpoint.steps_completed


def _add_checkpoint(writer: _Writer, checkpoint: CheckpointView) -> None:
    storage, uuid = find_checkpoint(checkpoint.path)
    names = storage.files(uuid)
    if not names:
        raise NotFound(f"checkpoint {uuid}: {checkpoint.path} is not there any more")
    with storage.reading(uuid) as folder:
        for name in names:
            parts = _parts(folder / name)
            if name == METADATA_FILE and checkpoint.is_foreign:  # it becomes one of ours
                metadata = json.loads(b"".join(parts)) | {"uuid": uuid}
                parts = iter([json.dumps(metadata).encode()])
            writer.add(f"{checkpoint_folder(uuid)}/{name}", parts)


def _parts(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            while part := file.read(_PART_BYTES):
                yield part
    except OSError as error:
        raise DetError(f"{path}: cannot be read: {error.strerror or error}") from None


def _request(
    view: ExperimentView, capsule: Capsule, trials: list[ImportedTrial]
) -> ImportExperiment:
    """Return the request that imports the experiment, without what is only valid here."""
    identity = f"{view.id} {view.created_at!r} {view.capsule.sources}"
    return ImportExperiment.built_from(
        view,
        key=hashlib.sha256(identity.encode()).hexdigest(),
        source=f"experiment {view.id}",
        config=shareable(view.config),
        capsule=capsule.model_copy(update={"environment": None, "umask": None}),
        python="",
        cwd="",
        notebook=None,
        template=None,
        parent_id=None,
        trials=trials,
        state=view.state.value,
        search=view.search,
    )
