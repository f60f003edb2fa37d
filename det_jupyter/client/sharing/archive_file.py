"""An archive that is read: all that is in it is checked, and nothing of it is run or unpacked."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, Literal

from pydantic import TypeAdapter, ValidationError

from det_jupyter.client.imports.whole_experiments import MetricsRecord, TrialData
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
)
from det_jupyter.contract.messages import ImportExperiment
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported, Progress, parse_line
from det_jupyter.contract.values.bounds import find_value_problem
from det_jupyter.storage import METADATA_FILE
from det_jupyter.storage.contract import is_name

_PART_BYTES = 1024 * 1024
_SOURCES = TypeAdapter(dict[str, dict[Literal["label", "source"], str]])  # of Capsule.sources


class Damaged(Exception):
    """An archive cannot be imported; the message says why, without the file's name."""


class ArchiveFile:
    """An archive that is read; all members are checked by size and digest.

    Raises:
        Damaged, zipfile.BadZipFile: It is none, or not of this version.
    """

    def __init__(self, stream: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(stream)
        except (ValueError, zipfile.BadZipFile) as error:
            raise Damaged(f"it is no archive of det_jupyter ({error})") from None
        self.size_bytes = os.fstat(stream.fileno()).st_size
        self._infos = self._zip.infolist()
        self._check_members()
        self.manifest = self._read_manifest()
        self._check_listed()
        self.files = self._files_by_checkpoint()

    def __enter__(self) -> ArchiveFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def _check_members(self) -> None:
        names = [info.filename for info in self._infos]
        if len(set(names)) < len(names):
            raise Damaged("two of its members have one name")
        for info in self._infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if not is_inside(info.filename) or info.flag_bits & 1:
                raise Damaged(f"its member {info.filename!r:.100} is none of an archive")
            if kind not in (0, stat.S_IFREG):
                raise Damaged(f"its member {info.filename!r:.100} is no regular file")
            if info.compress_type != zipfile.ZIP_STORED:
                raise Damaged(f"its member {info.filename!r:.100} is compressed")
        if sum(info.file_size for info in self._infos) > self.size_bytes:
            raise Damaged("its members claim to be larger than the file")

    def _read_manifest(self) -> Manifest:
        info = next((info for info in self._infos if info.filename == MANIFEST), None)
        if info is None or info.file_size > MAX_MANIFEST_BYTES:
            raise Damaged(f"it is no archive of det_jupyter: it has no {MANIFEST} of usual size")
        try:
            document = json.loads(self._zip.read(info))
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise Damaged(f"it is no archive of det_jupyter: {MANIFEST} is of another format")
            if document.get("version") != VERSION:
                raise Damaged(
                    f"it has version {document.get('version')!s:.20} of the format, and this "
                    f"det_jupyter reads version {VERSION}; install the version that wrote it "
                    f"({document.get('written_by')!s:.20}) or a later one"
                )
            if problem := find_value_problem(document.get("experiment")):
                raise Damaged(f"{MANIFEST} is damaged: it has {problem}")
            manifest = Manifest.model_validate(document)
            sent = manifest.experiment.model_dump(mode="json")
            json.dumps(
                sent, allow_nan=False, ensure_ascii=False
            ).encode()  # raises if it cannot be
            return manifest
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise Damaged(f"{MANIFEST} is damaged: {where:.200}: {first['msg']:.200}") from None
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{MANIFEST} is damaged: {error!s:.200}") from None

    def _check_listed(self) -> None:
        sizes = {each.filename: each.file_size for each in self._infos}
        del sizes[MANIFEST]
        listed = {name: member.size_bytes for name, member in self.manifest.members.items()}
        if differing := {name for name, _ in sizes.items() ^ listed.items()}:
            raise Damaged(f"{min(differing)!r:.100} is missing, unlisted or of another size")

    def _files_by_checkpoint(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.manifest.members:
            match name.split("/", 2):
                case ["checkpoints", uuid, _]:
                    found.setdefault(uuid, []).append(name)
        return found

    def check_names(self, request: ImportExperiment, digests: set[str]) -> None:
        """Check that there are the members that the experiment needs, and no others."""
        trials = range(len(request.trials))
        needed = {*map(blob_name, digests), *map(metrics_name, trials), *map(logs_name, trials)}
        uuids = [each.uuid for trial in request.trials for each in trial.checkpoints]
        for uuid in uuids:
            if not is_name(uuid) or not is_inside(uuid):
                raise Damaged(f"{uuid!r:.100} is no name of a checkpoint")
            needed.add(f"{checkpoint_folder(uuid)}/{METADATA_FILE}")
        if len(uuids) > len(set(uuids)):
            raise Damaged("two of its checkpoints have one name")
        found = self.manifest.members.keys()
        in_folders = {name for uuid in uuids for name in self.files.get(uuid, ())}
        others = found - needed - in_folders
        if wrong := (needed - found) | others:
            raise Damaged(f"{min(wrong)!r:.100} is missing, or belongs to no part of it")

    def check_blobs(self, digests: set[str], sources: str) -> None:
        """Check that each blob has the content of its name, and that the sources can be shown."""
        for digest in digests:
            member = self.manifest.members[blob_name(digest)]
            if member.sha256 != digest:
                raise Damaged(f"{blob_name(digest)} has another content")
            self.read(blob_name(digest), lambda _: None)
        try:
            _SOURCES.validate_json(self.content(blob_name(sources)))
        except ValueError:
            raise Damaged("its captured sources are damaged") from None

    def data_of(self, index: int) -> TrialData:
        """Return the metrics and printed lines of a trial."""
        name = metrics_name(index)
        try:
            text = self.content(name).decode()
            records = [_record(line) for line in text.split("\n") if line]
            name = logs_name(index)
            return TrialData(records=records, lines=parse_lines(self.content(name).decode()))
        except ValueError as error:
            raise Damaged(f"{name} is damaged: {str(error).splitlines()[0]:.200}") from None

    def content(self, name: str) -> bytes:
        """Return a member's content."""
        parts: list[bytes] = []
        self.read(name, parts.append)
        return b"".join(parts)

    def read(self, name: str, take: Callable[[bytes], object]) -> None:
        """Pass a member to `take`, part by part; raise if its content is another one."""
        if name not in self.manifest.members:
            raise Damaged(f"{name!r:.100} is missing")
        digest = hashlib.sha256()
        with self._zip.open(name) as stream:
            while part := stream.read(_PART_BYTES):
                digest.update(part)
                take(part)
        if digest.hexdigest() != self.manifest.members[name].sha256:
            raise Damaged(f"{name!r:.100} is damaged: it has another checksum")


def _record(line: str) -> MetricsRecord:
    record: Any = parse_line(line)
    if not isinstance(record, (BatchMetrics, MetricsReported, Progress)):
        raise ValueError(f"got a record of {record.kind}")
    return record
