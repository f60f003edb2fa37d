"""What is done with the objects of a checkpoint in a bucket. Only in the process that transfers.

    UUID/weights.pt ...             the files, under their own names
    UUID/.det-upload-0              an upload was begun; removed after the commit
    UUID/.det-files-0.json          the list of a share's files, with sizes and checksums
    UUID/metadata.json              the commit: if it is there, all the others are

An agent puts the mark of an upload, the files of its share, and its list after them. The agent
with share 0 has metadata.json: it creates it when the lists of all shares are there. The creation
is conditional: if the object is there with the same bytes, an earlier attempt has made it. Objects
are written whole or not at all, so an attempt after a crash goes on with the missing files.

A deletion removes metadata.json first and the lists last, by which one that was broken off is
recognised. Readers compare sizes and checksums (CRC-32) with the lists.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from det_jupyter.contract.values.text import listed
from det_jupyter.errors import BucketProblem
from det_jupyter.storage.buckets.leftovers import abort_uploads
from det_jupyter.storage.buckets.opening import open_bucket
from det_jupyter.storage.buckets.problems import Doing, explain
from det_jupyter.storage.contract import METADATA_FILE
from det_jupyter.storage.listing import sizes_in

T = TypeVar("T")
Listed: TypeAlias = dict[str, Any]  # size and crc32 of a file

LIST = ".det-files-"
MARK = ".det-upload-"
# Limits for all requests together: [m] the process needs 210 MB at most, for any files.
_PART_BYTES, _PARTS_AT_ONCE, _FILES = 8 << 20, 4, ThreadPoolExecutor(3)
_RANGE_BYTES, RANGES = 8 << 20, ThreadPoolExecutor(8)
_MOST_PARTS = 9_000  # of an object; S3 allows 10,000
_READ_BYTES = 1 << 20
_MOST_DELETED = 500  # objects of one request
_MOST_NAMED = 5
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Objects:
    """The objects of a checkpoint.

    Args:
        location: Location of the storage.
        uuid: The checkpoint.
    """

    def __init__(self, location: str, uuid: str) -> None:
        self._location = location
        self._uuid = uuid
        self._path = f"{location.rstrip('/')}/{uuid}"
        self._store = open_bucket(location)

    def put(self, folder: Path, share: int) -> None:
        """Put the files of a share, and its list; files that are there already are left out.

        Does nothing if the checkpoint is there, or another of its name: see `commit`.

        Raises:
            BucketProblem: An object cannot have the name of a file.
        """
        sizes = sizes_in(folder)
        for name in filter(_CONTROL.search, sizes):
            raise BucketProblem(
                f"{self._path}: a bucket cannot have a file with the name {name!r}", "other"
            )
        # Of each attempt, so its time says when the upload was last at work (sweeping.py); before
        # the list, so that what is listed is not removed as left.
        mark = f"{MARK}{share}"
        with self._explaining("write"):
            obstore.put(self._store, self._key(mark), b"")
        there = self._list()
        if METADATA_FILE in there:
            return self._remove([mark])
        with suppress(OSError):  # what an earlier process has left only takes room
            abort_uploads(self._location, f"{self._uuid}/", sizes)
        files = at_once(
            _FILES,
            lambda name: (name, self._put_file(folder, name, there.get(name))),
            sizes,
        )
        content = json.dumps({"files": dict(files)}, ensure_ascii=False)
        with self._explaining("write"):
            obstore.put(self._store, self._key(f"{LIST}{share}.json"), content.encode())

    def _put_file(self, folder: Path, name: str, size: int | None) -> Listed:
        with (folder / name).open("rb") as file:
            summed = _Summed(file)
            num_bytes = os.fstat(file.fileno()).st_size
            if name == METADATA_FILE or size == num_bytes:
                while summed.read(_READ_BYTES):
                    pass
            else:
                part_bytes = max(_PART_BYTES, num_bytes // _MOST_PARTS + 1)
                with self._explaining("write"), summed.raising():
                    obstore.put(
                        self._store,
                        self._key(name),
                        summed,  # type: ignore[arg-type]  # it reads, as a file does
                        chunk_size=part_bytes,
                        max_concurrency=max(1, _PART_BYTES * _PARTS_AT_ONCE // part_bytes),
                    )
        return {"size": summed.num_bytes, "crc32": f"{summed.sum:08x}"}

    def commit(self, folder: Path, share: int, num_shares: int) -> tuple[bool, int]:
        """Create the commit, if this share has it and the lists of all shares are there.

        Returns:
            Whether the checkpoint is there, and how many objects are.

        Raises:
            BucketProblem: Another checkpoint is there.
        """
        there = self._list()
        lists = list(filter(is_list, there))
        if METADATA_FILE in there and share > 0:
            return True, len(there)
        if share > 0 or len(lists) < num_shares:
            return False, len(there)
        if METADATA_FILE not in there:
            self._check_whole(lists, there)
        content = (folder / METADATA_FILE).read_bytes()
        with self._explaining("write"):
            try:
                obstore.put(self._store, self._key(METADATA_FILE), content, mode="create")
            except AlreadyExistsError:
                if self._read(METADATA_FILE) != content:
                    taken = f"{self._path}: another checkpoint is there"
                    raise BucketProblem(taken, "taken") from None
        with suppress(BucketProblem):  # they only take room
            self._remove([name for name in there if name.startswith(MARK)])
        return True, len(there)

    def _check_whole(self, lists: Iterable[str], there: Mapping[str, int]) -> None:
        """Check that no listed file was removed meanwhile, as by `sweep` of another master."""
        for name, file in self.read_lists(lists).items():
            if name != METADATA_FILE and there.get(name) != file["size"]:
                raise BucketProblem(
                    f"{self._path}: {name} was removed from the bucket during the upload",
                    "damaged",
                )

    def files(self) -> dict[str, int]:
        """Return the sizes of the files; empty if there is no such checkpoint."""
        there = self._list()
        if METADATA_FILE not in there:
            return {}
        return {name: there[name] for name in sorted(there) if not name.startswith((LIST, MARK))}

    def get(self, folder: Path, names: Collection[str] | None) -> None:
        """Copy files into a folder, metadata.json last, and compare them with the lists.

        Args:
            folder: The folder; it exists.
            names: The files; None: all.

        Raises:
            BucketProblem: There is no such checkpoint, or files are damaged; they are named.
        """
        there = self._list()
        if METADATA_FILE not in there:
            raise BucketProblem(f"checkpoint {self._uuid}: not in {self._location}", "absent")
        files = self.read_lists(there) or _unlisted(there)
        chosen = [name for name in files if names is None or name in names]
        damaged = {name: "it is not there" for name in chosen if name not in there}
        for name in chosen:
            if name in there and there[name] != files[name]["size"]:
                damaged[name] = f"{there[name]} of {files[name]['size']} bytes"
        whole = [name for name in chosen if name not in damaged]
        jobs = [
            (name, start, min(start + _RANGE_BYTES, there[name]))
            for name in whole
            for start in range(0, max(1, there[name]), _RANGE_BYTES)
        ]
        for name in whole:
            path = _inside(folder, name)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(b"")
        at_once(RANGES, lambda job: self._get_range(folder, *job), jobs)
        for name in whole:
            expected = files[name].get("crc32")
            if expected is not None and _checksum(folder / name) != expected:
                damaged[name] = "its checksum is another"
        if damaged:
            named = [f"{name} ({why})" for name, why in sorted(damaged.items())]
            raise BucketProblem(
                f"checkpoint {self._path} is damaged: {listed(named, most=_MOST_NAMED)}", "damaged"
            )

    def _get_range(self, folder: Path, name: str, start: int, end: int) -> None:
        if end == start:
            return
        with self._explaining("read"):
            part = obstore.get_range(self._store, self._key(name), start=start, end=end)
        with (folder / name).open("rb+") as file:
            os.pwrite(file.fileno(), memoryview(part), start)

    def read_lists(self, there: Iterable[str]) -> dict[str, Listed]:
        """Return what the lists among these objects say of each file."""
        files: dict[str, Listed] = {}
        for name in filter(is_list, sorted(there)):
            files |= json.loads(self._read(name))["files"]
        return files

    def delete(self, names: Collection[str] | None) -> None:
        """Remove a checkpoint, or some of its files. Does nothing if there is none.

        Raises:
            BucketProblem: What is there is no checkpoint of this name.
        """
        there = self._list()
        lists = list(filter(is_list, there))
        if METADATA_FILE in there:
            self._check_own()
        elif not lists:  # those of a deletion that was broken off are there
            return
        if names is not None:
            return self._delete_some(lists, set(names))
        others = there.keys() - {METADATA_FILE, *lists}
        for some in ([METADATA_FILE] if METADATA_FILE in there else [], sorted(others), lists):
            self._remove(some)
        self._abort_uploads()

    def discard(self) -> bool:
        """Remove what was put of a checkpoint, if it has no commit; return whether it has one."""
        there = self._list()
        if METADATA_FILE in there:
            return True
        # The marks and lists last: by them it is known as an upload.
        self._remove(sorted(there, key=lambda name: (name.startswith((LIST, MARK)), name)))
        self._abort_uploads()
        return False

    def _abort_uploads(self) -> None:
        with suppress(OSError):  # they only take room
            abort_uploads(self._location, f"{self._uuid}/")

    def _delete_some(self, lists: Iterable[str], names: Collection[str]) -> None:
        """Take files out of the lists, then remove them: a reader misses none."""
        for each in lists:
            files = self.read_lists([each])
            left = {name: file for name, file in files.items() if name not in names}
            content = json.dumps({"files": left}, ensure_ascii=False)
            with self._explaining("write"):
                obstore.put(self._store, self._key(each), content.encode())
        self._remove(sorted(names))

    def _check_own(self) -> None:
        try:
            found: object = json.loads(self._read(METADATA_FILE))
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("uuid") != self._uuid:
            raise BucketProblem(
                f"left {self._path} alone: it is not a checkpoint of this name", "taken"
            )

    def _remove(self, names: list[str]) -> None:
        with self._explaining("delete"):
            for start in range(0, len(names), _MOST_DELETED):
                self._remove_at_once(names[start : start + _MOST_DELETED])

    def _remove_at_once(self, names: list[str]) -> None:
        """Remove objects; those that are gone, which Azure and Google refuse, are left out."""
        try:
            obstore.delete(self._store, [self._key(name) for name in names])
        except FileNotFoundError:
            left = list(self._list().keys() & set(names))
            if len(left) == len(names):
                raise
            if left:
                self._remove_at_once(left)

    def _read(self, name: str) -> bytes:
        with self._explaining("read"):
            return bytes(obstore.get(self._store, self._key(name)).bytes())

    def _list(self) -> dict[str, int]:
        """Return the sizes of all objects, by their names in the checkpoint."""
        root = f"{self._uuid}/"
        with self._explaining("list"):
            return {
                meta["path"].removeprefix(root): meta["size"]
                for some in obstore.list(self._store, prefix=root)
                for meta in some
            }

    def _key(self, name: str) -> str:
        return f"{self._uuid}/{name}"

    def _explaining(self, doing: Doing) -> AbstractContextManager[None]:
        return explaining(self._location, doing)


def _unlisted(there: Mapping[str, int]) -> dict[str, Listed]:
    """Return the files of a checkpoint of Determined: it has no lists, and objects for folders."""
    folders = {str(parent) for name in there for parent in PurePosixPath(name).parents}
    return {name: {"size": there[name]} for name in there.keys() - folders}


@contextmanager
def explaining(location: str, doing: Doing) -> Iterator[None]:
    """Raise the BucketProblem that an error of obstore means; see `explain`."""
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        if isinstance(error, FileNotFoundError) and error.errno is not None:
            raise  # a file of this computer
        raise explain(error, location, doing) from None


class _Summed:
    """A file that obstore reads; its size and checksum are known when it has."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._error: OSError | None = None
        self.num_bytes, self.sum = 0, 0

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise the error with which the file could not be read, of which obstore has the text."""
        try:
            yield
        except Exception:  # obstore raises errors of its own
            if self._error is not None:
                raise self._error from None
            raise

    def read(self, size: int = -1) -> bytes:
        try:
            part: bytes = self._file.read(size)
        except OSError as error:
            self._error = error
            raise
        self.num_bytes, self.sum = self.num_bytes + len(part), zlib.crc32(part, self.sum)
        return part

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and offset == 0:
            self.num_bytes, self.sum = 0, 0
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        summed = _Summed(file)
        while summed.read(_READ_BYTES):
            pass
    return f"{summed.sum:08x}"


def at_once(threads: ThreadPoolExecutor, do: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """Return the results of a function for each item; the first error ends the others."""
    tasks = [threads.submit(do, item) for item in items]
    try:
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        wait(tasks)


def is_list(name: str) -> bool:
    """Return whether an object of a checkpoint is a list of its files."""
    return name.startswith(LIST)


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise BucketProblem(f"{name!r} leads out of the folder of its checkpoint", "damaged")
    return folder / path
