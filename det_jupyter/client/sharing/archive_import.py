"""`import_archive`: an archive becomes an experiment of this master.

Everything in the file is checked before the first request: a file that is damaged, or made to do
harm, leaves nothing behind. No code of it is run; that is done by continuing the experiment, or by
loading a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import TypeAdapter, ValidationError

from det_jupyter.client.client import Client
from det_jupyter.client.imports.whole_experiments import (
    MetricsRecord,
    StoredImport,
    TrialData,
    import_whole,
)
from det_jupyter.client.sharing.archive_format import (
    FORMAT,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    VERSION,
    Manifest,
    blob_name,
    checkpoint_folder,
    is_inside,
    logs_name,
    metrics_name,
    parse_lines,
    python_version,
    shareable,
)
from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.disk_space import room_of
from det_jupyter.contract.host.inheritance import own_umask
from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.messages import ImportedTrial, ImportExperiment
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported, Progress, parse_line
from det_jupyter.contract.trial.captured import blobs_of
from det_jupyter.contract.values.bounds import find_value_problem
from det_jupyter.contract.values.text import size
from det_jupyter.errors import ConfigError, Conflict, DetError
from det_jupyter.storage import METADATA_FILE, CheckpointStorage, StorageDraft, open_storage
from det_jupyter.storage.contract import is_name, path_of

LABEL = "imported"
_PART_BYTES = 1024 * 1024
_SOURCES = TypeAdapter(dict[str, dict[Literal["label", "source"], str]])  # of Capsule.sources


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


class _Damaged(Exception):
    """An archive cannot be imported; the message says why, without the file's name."""


def import_archive(client: Client, file: str | Path) -> ImportedArchive:
    """Make an experiment of an archive; repeatable.

    Raises:
        DetError: The file is no archive, or of a newer version, or damaged, or it does not fit on
            the disk; nothing was imported.
        Conflict: The experiment cannot take it, or a checkpoint is one of another experiment.
    """
    path = Path(file).expanduser()
    try:
        with open_regular(path) as stream, _Archive(stream) as archive:
            return _import(client, archive, path)
    except OSError as error:
        what = "read" if error.filename in (None, str(path)) else "imported"
        raise DetError(f"{path}: cannot be {what}: {error.strerror or error}") from None
    except (_Damaged, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DetError(f"{path}: {error}; nothing was imported") from None


def _import(client: Client, archive: _Archive, path: Path) -> ImportedArchive:
    request = _request(archive, path)
    data_dir = Path(client.session.info.data_dir)
    _check_room(archive, data_dir)
    for index in range(len(request.trials)):
        archive.data_of(index)
    digests = blobs_of(request.capsule)
    archive.check_names(request, digests)
    archive.check_blobs(digests, request.capsule.sources)
    storage = open_storage(None, data_dir)
    with ExitStack() as drafts:
        made = _copy_checkpoints(archive, request, storage, drafts)
        blobs = BlobStore(data_dir / "blobs")
        for digest in sorted(digests):
            with blobs.receiving(digest) as take:
                archive.read(blob_name(digest), take)
        for draft in made.values():
            draft.commit()
    try:
        stored = import_whole(client, _placed(request, storage), archive.data_of)
    except (ConfigError, Conflict):  # before anything was stored
        for uuid in made:
            storage.delete(uuid)
        raise
    return ImportedArchive(
        stored=stored,
        num_trials=len(request.trials),
        num_checkpoints=sum(len(trial.checkpoints) for trial in request.trials),
        remarks=_remarks(request),
    )


class _Archive:
    """An archive that is read; all members are checked by size and digest.

    Raises:
        _Damaged, zipfile.BadZipFile: It is none, or not of this version.
    """

    def __init__(self, stream: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(stream)
        except (ValueError, zipfile.BadZipFile) as error:
            raise _Damaged(f"it is no archive of det_jupyter ({error})") from None
        self.size_bytes = os.fstat(stream.fileno()).st_size
        self._infos = self._zip.infolist()
        self._check_members()
        self.manifest = self._read_manifest()
        self._check_listed()

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def _check_members(self) -> None:
        names = [info.filename for info in self._infos]
        if len(set(names)) < len(names):
            raise _Damaged("two of its members have one name")
        for info in self._infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if not is_inside(info.filename) or info.flag_bits & 1:
                raise _Damaged(f"its member {info.filename!r:.100} is none of an archive")
            if kind not in (0, stat.S_IFREG):
                raise _Damaged(f"its member {info.filename!r:.100} is no regular file")
            if info.compress_type != zipfile.ZIP_STORED:
                raise _Damaged(f"its member {info.filename!r:.100} is compressed")
        if sum(info.file_size for info in self._infos) > self.size_bytes:
            raise _Damaged("its members claim to be larger than the file")

    def _read_manifest(self) -> Manifest:
        info = next((info for info in self._infos if info.filename == MANIFEST), None)
        if info is None or info.file_size > MAX_MANIFEST_BYTES:
            raise _Damaged(f"it is no archive of det_jupyter: it has no {MANIFEST} of usual size")
        try:
            document = json.loads(self._zip.read(info))
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise _Damaged(f"it is no archive of det_jupyter: {MANIFEST} is of another format")
            if document.get("version") != VERSION:
                raise _Damaged(
                    f"it has version {document.get('version')!s:.20} of the format, and this "
                    f"det_jupyter reads version {VERSION}; install the version that wrote it "
                    f"({document.get('written_by')!s:.20}) or a later one"
                )
            if problem := find_value_problem(document.get("experiment")):
                raise _Damaged(f"{MANIFEST} is damaged: it has {problem}")
            return Manifest.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise _Damaged(f"{MANIFEST} is damaged: {where:.200}: {first['msg']:.200}") from None
        except (ValueError, RecursionError) as error:
            raise _Damaged(f"{MANIFEST} is damaged: {error!s:.200}") from None

    def _check_listed(self) -> None:
        sizes = {each.filename: each.file_size for each in self._infos}
        del sizes[MANIFEST]
        listed = {name: member.size_bytes for name, member in self.manifest.members.items()}
        if differing := {name for name, _ in sizes.items() ^ listed.items()}:
            raise _Damaged(f"{min(differing)!r:.100} is missing, unlisted or of another size")

    def check_names(self, request: ImportExperiment, digests: set[str]) -> None:
        """Check that there are the members that the experiment needs, and no others."""
        trials = range(len(request.trials))
        needed = {*map(blob_name, digests), *map(metrics_name, trials), *map(logs_name, trials)}
        uuids = [each.uuid for trial in request.trials for each in trial.checkpoints]
        for uuid in uuids:
            if not is_name(uuid) or not is_inside(uuid) or uuids.count(uuid) > 1:
                raise _Damaged(f"{uuid!r:.100} is no name of a checkpoint")
            needed.add(f"{checkpoint_folder(uuid)}/{METADATA_FILE}")
        folders = tuple(f"{checkpoint_folder(uuid)}/" for uuid in uuids)
        found = self.manifest.members.keys()
        others = {name for name in found - needed if not name.startswith(folders)}
        if wrong := (needed - found) | others:
            raise _Damaged(f"{min(wrong)!r:.100} is missing, or belongs to no part of it")

    def check_blobs(self, digests: set[str], sources: str) -> None:
        """Check that each blob has the content of its name, and that the sources can be shown."""
        for digest in digests:
            member = self.manifest.members[blob_name(digest)]
            if member.sha256 != digest:
                raise _Damaged(f"{blob_name(digest)} has another content")
            self.read(blob_name(digest), lambda _: None)
        try:
            _SOURCES.validate_json(self.content(blob_name(sources)))
        except ValueError:
            raise _Damaged("its captured sources are damaged") from None

    def data_of(self, index: int) -> TrialData:
        """Return the metrics and printed lines of a trial."""
        name = metrics_name(index)
        try:
            text = self.content(name).decode()
            records = [_record(line) for line in text.split("\n") if line]
            name = logs_name(index)
            return TrialData(records=records, lines=parse_lines(self.content(name).decode()))
        except ValueError as error:
            raise _Damaged(f"{name} is damaged: {str(error).splitlines()[0]:.200}") from None

    def content(self, name: str) -> bytes:
        """Return a member's content."""
        parts: list[bytes] = []
        self.read(name, parts.append)
        return b"".join(parts)

    def read(self, name: str, take: Callable[[bytes], object]) -> None:
        """Pass a member to `take`, part by part; raise if its content is another one."""
        if name not in self.manifest.members:
            raise _Damaged(f"{name!r:.100} is missing")
        digest = hashlib.sha256()
        with self._zip.open(name) as stream:
            while part := stream.read(_PART_BYTES):
                digest.update(part)
                take(part)
        if digest.hexdigest() != self.manifest.members[name].sha256:
            raise _Damaged(f"{name!r:.100} is damaged: it has another checksum")


def _record(line: str) -> MetricsRecord:
    record: Any = parse_line(line)
    if not isinstance(record, (BatchMetrics, MetricsReported, Progress)):
        raise ValueError(f"got a record of {record.kind}")
    return record


def _request(archive: _Archive, path: Path) -> ImportExperiment:
    """Return the experiment with what is valid here."""
    given = archive.manifest.experiment
    try:
        config = shareable(parse_config(given.config).to_document())
        labels = dict.fromkeys([*(config.get("labels") or ()), LABEL])
        config = parse_config(config | {"labels": [*labels]}).to_document()
    except ConfigError as error:
        problems = "; ".join(map(str, error.problems))
        raise _Damaged(f"its configuration is not valid here: {problems:.500}") from None
    for name in given.capsule.modules:
        if not is_inside(name):
            raise _Damaged(f"its module {name!r:.100} would lie outside of the code's folder")
    notices = [*given.capsule.notices, f"Imported from {path.name}, {given.source} elsewhere"]
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


def _check_room(archive: _Archive, data_dir: Path) -> None:
    room = room_of(data_dir)
    if room is not None and room.is_short(archive.size_bytes):
        raise _Damaged(
            f"its {size(archive.size_bytes)} do not fit on the disk of {data_dir}, where "
            f"{size(room.free_bytes)} are free"
        )


def _copy_checkpoints(
    archive: _Archive, request: ImportExperiment, storage: CheckpointStorage, drafts: ExitStack
) -> dict[str, StorageDraft]:
    """Copy the checkpoints that are not here yet into drafts, and return these by uuid."""
    made: dict[str, StorageDraft] = {}
    for uuid in (each.uuid for trial in request.trials for each in trial.checkpoints):
        if storage.files(uuid):
            continue
        made[uuid] = draft = storage.begin(uuid)
        drafts.callback(draft.discard)
        prefix = f"{checkpoint_folder(uuid)}/"
        for name in archive.manifest.members:
            if name.startswith(prefix):
                with _created(draft.path / name.removeprefix(prefix)) as file:
                    archive.read(name, file.write)
        _check_metadata(draft.path / METADATA_FILE, uuid)
    return made


@contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file
    except (FileExistsError, NotADirectoryError):
        raise _Damaged(f"{path.name!r:.100} is a file and a folder of a checkpoint") from None


def _check_metadata(path: Path, uuid: str) -> None:
    try:
        metadata = json.loads(path.read_bytes())
        is_own = metadata["uuid"] == uuid
    except (ValueError, RecursionError, KeyError, TypeError):
        is_own = False
    if not is_own:
        raise _Damaged(f"{METADATA_FILE} of checkpoint {uuid} is damaged")


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
    there = capsule.packages.get("Python", "")
    if there and not f"{there}.".startswith(f"{python_version()}."):
        return [
            f"Its code was captured with Python {there} and this is {python_version()}: "
            "continuing it, or loading a checkpoint, may need that version."
        ]
    return []
