"""A storage that is not a folder: a zip file for each checkpoint. It stands for object storage.

zip:///<root>     <root>/<uuid>.zip, and drafts in <root>/drafts
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from det_jupyter.errors import CheckpointError
from det_jupyter.storage.contract import (
    METADATA_FILE,
    CheckpointFiles,
    Leftover,
    is_name,
    read_metadata,
)
from det_jupyter.storage.directory import DirectoryDraft, DirectoryStorage
from det_jupyter.storage.globs import matching

SCHEME = "zip"


class ZipDraft:
    """A StorageDraft: a folder that `commit` packs."""

    def __init__(self, inner: DirectoryDraft, file: Path) -> None:
        self.path = inner.path
        self._inner = inner
        self._file = file

    def sync(self) -> None:
        """Do nothing: files are stored by `commit`."""

    def commit(self) -> None:
        """Pack the folder into a temporary file, and rename that."""
        _pack(self.path, self._file)
        self._inner.discard()

    def become_share(self) -> Path:
        """Raise an error: shares of this storage are not uploaded."""
        return self._inner.become_share()

    def discard(self) -> None:
        """Remove the folder."""
        self._inner.discard()


class ZipStorage:
    """A CheckpointStorage of zip files."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.root = Path(location.removeprefix(f"{SCHEME}://"))
        self._drafts = DirectoryStorage(self.root / "drafts")

    def check_writable(self) -> None:
        """Check that the root can be written."""
        DirectoryStorage(self.root).check_writable()

    def begin(self, uuid: str) -> ZipDraft:
        """Return a draft in a folder beside the zip files."""
        file = self._file(uuid)
        return ZipDraft(self._drafts.begin(uuid), file)

    def draft_path(self, uuid: str) -> Path | None:
        """Return the folder of a draft, if there is one."""
        return self._drafts.draft_path(uuid)

    @contextmanager
    def reading(self, uuid: str, takes: Callable[[str], bool] | None = None) -> Iterator[Path]:
        """Yield a temporary folder with the unpacked files that are needed."""
        names = self.files(uuid)
        if not names:
            raise CheckpointError(f"checkpoint {uuid}: not in {self.location}")
        taken = [name for name in names if takes is None or takes(name) or name == METADATA_FILE]
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(self._file(uuid)) as packed:
                packed.extractall(folder, taken)
            yield Path(folder)

    def files(self, uuid: str) -> dict[str, int]:
        """Return the files and sizes in the zip file's directory."""
        try:
            with zipfile.ZipFile(self._file(uuid)) as packed:
                return {info.filename: info.file_size for info in packed.infolist()}
        except FileNotFoundError:
            return {}

    def delete(self, uuid: str, globs: Sequence[str] = ()) -> int:
        """Pack the zip file anew without the matching files, or remove it."""
        if not (names := self.files(uuid)):
            return 0
        with self.reading(uuid) as folder:
            if read_metadata(folder).get("uuid") != uuid:
                raise CheckpointError(f"left {uuid} alone: it is no checkpoint of this name")
            left = names.keys() - set(matching(names, globs)) if globs else set()
            if left - {METADATA_FILE}:
                for name in names.keys() - left:
                    (folder / name).unlink()
                _pack(folder, self._file(uuid))
                return sum(names[name] for name in left)
        self._file(uuid).unlink(missing_ok=True)
        return 0

    def store(self, uuid: str, folder: Path) -> None:
        """Pack a folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        _pack(folder, self._file(uuid))

    def scan(self) -> list[CheckpointFiles]:
        """Return the zip files that can be opened."""
        return [
            CheckpointFiles(
                uuid=path.stem,
                num_bytes=sum(self.files(path.stem).values()),
                stored_at=path.stat().st_mtime,
            )
            for path in sorted(self.root.glob("[!.]*.zip"))
        ]

    def sweep(self, age_s: float, remove: Collection[str] = ()) -> list[Leftover]:
        """Return the drafts of writers that have ended."""
        return self._drafts.sweep(age_s, remove)

    def probe(self) -> AbstractContextManager[str]:
        """Put a file into the folder."""
        return DirectoryStorage(self.root).probe()

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return DirectoryStorage(self.root).has(name)

    def remove_leftovers(self) -> None:
        """Remove the drafts of writers that have ended."""
        self._drafts.remove_leftovers()

    def _file(self, uuid: str) -> Path:
        if not is_name(uuid):
            raise CheckpointError(f"checkpoint {uuid!r}: this is not the name of a checkpoint")
        return self.root / f"{uuid}.zip"


def _pack(folder: Path, file: Path) -> None:
    scratch = file.with_name(f".{file.name}")
    with zipfile.ZipFile(scratch, "w") as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(folder).as_posix())
    scratch.rename(file)
