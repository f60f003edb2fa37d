"""`import_archive`: an archive becomes an experiment of this master.

Everything in the file is checked before the first request: a file that is damaged, or made to do
harm, leaves nothing behind. No code of it is run; that is done by continuing the experiment, or by
loading a checkpoint.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from det_jupyter.client.client import Client
from det_jupyter.client.imports.whole_experiments import StoredImport, store_data
from det_jupyter.client.sharing.archive_file import ArchiveFile, Damaged
from det_jupyter.client.sharing.archive_format import (
    blob_name,
    checkpoint_folder,
    is_inside,
    python_version,
    shareable,
)
from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.disk_space import room_of
from det_jupyter.contract.host.inheritance import own_umask
from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.messages import Capsule, ImportedTrial, ImportExperiment
from det_jupyter.contract.trial.captured import blobs_of
from det_jupyter.contract.trial.context_dir import context_files
from det_jupyter.contract.values.text import one_line, size
from det_jupyter.errors import ConfigError, DetError, MasterUnreachable, NotFound
from det_jupyter.storage import METADATA_FILE, CheckpointStorage, StorageDraft, open_storage
from det_jupyter.storage.contract import path_of

LABEL = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedArchive:
    """The result of an import.

    Args:
        stored: The experiment, and how much of it was new.
        num_trials, num_checkpoints: Those in the archive.
        remarks: What differs here, for the user.
    """

    stored: StoredImport
    num_trials: int
    num_checkpoints: int
    remarks: list[str]


def import_archive(client: Client, file: str | Path) -> ImportedArchive:
    """Make an experiment of an archive; repeatable.

    Raises:
        DetError: The file is no archive, or of a newer version, or damaged, or it does not fit on
            the disk; nothing was imported.
        Conflict: The experiment cannot take it, or a checkpoint is one of another experiment.
    """
    path = Path(file).expanduser()
    try:
        stream = open_regular(path)
    except OSError as error:
        raise DetError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        with stream, ArchiveFile(stream) as archive:
            return _import(client, archive, path)
    except OSError as error:
        why = error.strerror or error
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            why = "another import has just stored one of its checkpoints; import it again"
        raise DetError(f"{path}: cannot be imported: {why}") from None
    except (Damaged, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DetError(f"{path}: {one_line(str(error))}; nothing was imported") from None


def _import(client: Client, archive: ArchiveFile, path: Path) -> ImportedArchive:
    request = _request(archive, path)
    data_dir = Path(client.session.info.data_dir)
    _check_room(archive, data_dir)
    for index in range(len(request.trials)):
        archive.data_of(index)
    digests = blobs_of(request.capsule)
    archive.check_names(request, digests)
    archive.check_blobs(digests, request.capsule.sources)
    storage = open_storage(None, data_dir)
    with ExitStack() as undo:
        drafts = _copy_checkpoints(archive, request, storage, undo)
        blobs = BlobStore.of(data_dir)
        for digest in sorted(digests):
            with blobs.receiving(digest) as take:
                archive.read(blob_name(digest), take)
        _check_context(request.capsule, blobs)
        for uuid, draft in drafts.items():
            draft.commit()
            undo.callback(storage.delete, uuid)
        try:
            view = client.change(_placed(request, storage))
        except (MasterUnreachable, KeyboardInterrupt):
            undo.pop_all()  # it may have been stored
            raise
        undo.pop_all()
    stored = store_data(client, view, request, archive.data_of)
    return ImportedArchive(
        stored=stored,
        num_trials=len(request.trials),
        num_checkpoints=sum(len(trial.checkpoints) for trial in request.trials),
        remarks=_remarks(request),
    )


def _request(archive: ArchiveFile, path: Path) -> ImportExperiment:
    """Return the experiment with what is valid here."""
    given = archive.manifest.experiment
    try:
        config = shareable(parse_config(given.config).to_document())
        labels = dict.fromkeys([*(config.get("labels") or ()), LABEL])
        config = parse_config(config | {"labels": [*labels]}).to_document()
    except ConfigError as error:
        problems = "; ".join(map(str, error.problems))
        raise Damaged(f"its configuration is not valid here: {problems:.500}") from None
    for name in given.capsule.modules:
        if not is_inside(name):
            raise Damaged(f"its module {name!r:.100} would lie outside of the code's folder")
    notices = [
        *given.capsule.notices,
        f"Imported from {path.name}, {one_line(given.source)} elsewhere",
    ]
    changed = {"environment": None, "umask": own_umask(), "notices": notices}
    return given.model_copy(
        update={
            "source": path.name,
            "config": config,
            "capsule": given.capsule.model_copy(update=changed),
            "python": sys.executable,
            "cwd": os.getcwd(),
            "notebook": None,
            "template": None,
            "parent_id": None,
        }
    )


def _check_room(archive: ArchiveFile, data_dir: Path) -> None:
    room = room_of(data_dir)
    if room is not None and room.is_short(archive.size_bytes):
        raise Damaged(
            f"its {size(archive.size_bytes)} do not fit on the disk of {data_dir}, where "
            f"{size(room.free_bytes)} are free"
        )


def _copy_checkpoints(
    archive: ArchiveFile, request: ImportExperiment, storage: CheckpointStorage, undo: ExitStack
) -> dict[str, StorageDraft]:
    """Copy the checkpoints that are not here yet into drafts, and return these by uuid."""
    made: dict[str, StorageDraft] = {}
    for uuid in (each.uuid for trial in request.trials for each in trial.checkpoints):
        if storage.files(uuid):
            _check_same(archive, storage, uuid)
            continue
        made[uuid] = draft = storage.begin(uuid)
        undo.callback(draft.discard)
        for name in archive.files[uuid]:
            inner = name.removeprefix(f"{checkpoint_folder(uuid)}/")
            with _created(draft.path / inner) as file:
                archive.read(name, file.write)
        _check_metadata(draft.path / METADATA_FILE, uuid)
    return made


def _check_context(capsule: Capsule, blobs: BlobStore) -> None:
    try:
        if capsule.context is not None:
            context_files(capsule.context, blobs)
    except NotFound as error:
        raise Damaged(str(error)) from None


def _check_same(archive: ArchiveFile, storage: CheckpointStorage, uuid: str) -> None:
    """Check that the files of a checkpoint that is here are those of the archive, or some."""
    listed = archive.manifest.members
    with storage.reading(uuid) as folder:
        for name in storage.files(uuid):
            member = listed.get(f"{checkpoint_folder(uuid)}/{name}")
            with open_regular(folder / name) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if member is None or member.sha256 != digest:
                raise Damaged(f"its checkpoint {uuid} is here with another content of {name!r}")


@contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file
    except (FileExistsError, NotADirectoryError):
        raise Damaged(f"{path.name!r:.100} is a file and a folder of a checkpoint") from None


def _check_metadata(path: Path, uuid: str) -> None:
    try:
        metadata = json.loads(path.read_bytes())
        is_own = metadata["uuid"] == uuid
    except (ValueError, RecursionError, KeyError, TypeError):
        is_own = False
    if not is_own:
        raise Damaged(f"{METADATA_FILE} of checkpoint {uuid} is damaged")


def _placed(request: ImportExperiment, storage: CheckpointStorage) -> ImportExperiment:
    """Return the request with the places of the checkpoints here."""

    def placed(trial: ImportedTrial) -> ImportedTrial:
        own = [
            each.model_copy(update={"path": path_of(storage, each.uuid)})
            for each in trial.checkpoints
        ]
        return trial.model_copy(update={"checkpoints": own})

    return request.model_copy(update={"trials": [placed(trial) for trial in request.trials]})


def _remarks(request: ImportExperiment) -> list[str]:
    capsule = request.capsule
    if not capsule.has_code:
        return ["Its code was not captured, so it cannot be continued."]
    there = one_line(capsule.packages.get("Python", ""))
    if there and not f"{there}.".startswith(f"{python_version()}."):
        return [
            f"Its code was captured with Python {there} and this is {python_version()}: "
            "continuing it, or loading a checkpoint, may need that version."
        ]
    return []
