"""A CheckpointStorage in a bucket. Another process transfers (process.py).

Drafts and the copies that are read are on this computer: in `copies` in the data folder. In an
experiment, ranks use that folder alone, and their agent uploads (agent/link/uploads.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter.contract.host import paths
from det_jupyter.contract.values.bucket_urls import parse_bucket_url
from det_jupyter.errors import BucketProblem, CheckpointError
from det_jupyter.storage.buckets.process import transfers
from det_jupyter.storage.contract import METADATA_FILE, CheckpointFiles, Leftover, is_name
from det_jupyter.storage.directory import DirectoryDraft, DirectoryStorage, remove_tree
from det_jupyter.storage.globs import matching


class BucketDraft:
    """A StorageDraft: a folder on this computer, which `commit` uploads."""

    def __init__(self, storage: BucketStorage, uuid: str, inner: DirectoryDraft) -> None:
        self.path = inner.path
        self._storage = storage
        self._uuid = uuid
        self._inner = inner

    def sync(self) -> None:
        """Do nothing: the folder is lost with this process."""

    def commit(self) -> None:
        """Upload the files, and remove the folder."""
        self._storage.store(self._uuid, self.path)
        self._inner.discard()

    def become_share(self) -> Path:
        """Refuse: outside of experiments, nothing uploads a share."""
        return self._inner.become_share()

    def discard(self) -> None:
        """Remove the folder."""
        self._inner.discard()


class BucketStorage:
    """A CheckpointStorage in a bucket.

    Args:
        location: As in bucket_urls.py.

    Raises:
        BucketProblem: It is no such location.
    """

    def __init__(self, location: str) -> None:
        try:
            parse_bucket_url(location)
        except ValueError as error:
            raise BucketProblem(f"checkpoint_storage: {error}", "other") from None
        self.location = location
        self._copies = copies_dir(paths.data_dir())

    @property
    def _drafts(self) -> DirectoryStorage:
        return DirectoryStorage(self._copies)

    def check_writable(self) -> None:
        """Write, read, list and delete an object."""
        transfers.ask("check", self.location)

    def begin(self, uuid: str) -> BucketDraft:
        """Return a draft in the folder of copies."""
        return BucketDraft(self, uuid, self._drafts.begin(uuid))

    def store(self, uuid: str, folder: Path) -> None:
        """Upload the files, and commit them."""
        self._ask("put", uuid, folder=str(folder), share=0)
        self._ask("commit", uuid, folder=str(folder), share=0, num_shares=1)

    def draft_path(self, uuid: str) -> Path | None:
        """Return the folder of a draft on this computer."""
        return self._drafts.draft_path(uuid)

    @contextmanager
    def reading(self, uuid: str, takes: Callable[[str], bool] | None = None) -> Iterator[Path]:
        """Yield the copy that an agent has on this computer, or one that is removed afterwards."""
        own = self._copies / _checked(uuid)
        if own.is_dir():
            yield own
            return
        self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".read-", dir=self._copies) as folder:
            self.download(uuid, Path(folder), takes)
            yield Path(folder)

    def download(
        self, uuid: str, folder: Path, takes: Callable[[str], bool] | None = None
    ) -> None:
        """Copy files of a checkpoint into a folder, which exists; see `reading`.

        Raises:
            BucketProblem: There is none, or files are damaged; they are named.
        """
        names = None
        if takes is not None:
            names = [name for name in self.files(uuid) if takes(name) or name == METADATA_FILE]
        self._ask("get", uuid, folder=str(folder), names=names)

    def files(self, uuid: str) -> dict[str, int]:
        """Return the files and their sizes."""
        found: dict[str, int] = self._ask("files", uuid)
        return found

    def delete(self, uuid: str, globs: Sequence[str] = ()) -> int:
        """Remove a checkpoint or files of it, and the copy on this computer."""
        own = self._copies / _checked(uuid)
        if own.is_dir():
            remove_tree(own)
        sizes = self.files(uuid) if globs else {}
        doomed = matching(sizes, globs)
        left = sizes.keys() - set(doomed)
        if left - {METADATA_FILE}:
            self._ask("delete", uuid, names=doomed)
            return sum(sizes[name] for name in left)
        self._ask("delete", uuid, names=None)
        return 0

    def scan(self) -> list[CheckpointFiles]:
        """Return the checkpoints, and what is missing in them by the lists of their files."""
        return [CheckpointFiles(**each) for each in transfers.ask("scan", self.location)]

    def remove_leftovers(self) -> None:
        """Remove drafts of writers on this computer that were killed."""
        self._drafts.remove_leftovers()

    def sweep(self, age_s: float, remove: Collection[str] = ()) -> list[Leftover]:
        """Return objects without a commit, and unfinished uploads in parts."""
        found = transfers.ask("sweep", self.location, age_s=age_s, remove=list(remove))
        return [Leftover(**each) for each in found]

    @contextmanager
    def probe(self) -> Iterator[str]:
        """Put an empty object below the location."""
        name: str = transfers.ask("put_probe", self.location)
        try:
            yield name
        finally:
            transfers.ask("remove_probe", self.location, name=name)

    def has(self, name: str) -> bool:
        """Return whether there is an object of this name."""
        return bool(transfers.ask("has", self.location, name=name))

    def _ask(self, call: str, uuid: str, **given: Any) -> Any:
        return transfers.ask(call, self.location, _checked(uuid), **given)


def copies_dir(data_dir: Path) -> Path:
    """Return the folder with the copies of checkpoints that are in buckets."""
    return data_dir / "copies"


def _checked(uuid: str) -> str:
    if not is_name(uuid):
        raise CheckpointError(f"checkpoint {uuid!r}: this is not the name of a checkpoint")
    return uuid
