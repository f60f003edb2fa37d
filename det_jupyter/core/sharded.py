"""A checkpoint that all ranks write together. All ranks must call the methods in step.

    each rank                     the ranks exchange             then
    lists its files, metadata     `Part`s, and digests           the chief makes a draft
    copies its files into it      whether all have succeeded     the chief commits or discards it

A failure or an interrupt on one rank is raised on all (together.py). The checkpoint is the union
of the ranks' parts; each rank computes it from the same `Part`s (parts.py).

If checkpoints are in det_jupyter's own folder, other computers do not see the chief's draft. Then
the first rank of each of them makes a draft there. These are committed as shares, before the chief
commits its own. The agents upload the shares, and the master makes the checkpoint of them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from det_jupyter.contract.run.journal import CheckpointShare
from det_jupyter.contract.run.room import RoomGate, write_when_room
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.drafts import CheckpointDraft, bytes_in, check_steps, plain_metadata
from det_jupyter.core.folders import (
    Folder,
    Selector,
    copy_files,
    digest_of,
    list_folder,
    move_files,
    remove_files,
)
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.parts import (
    Part,
    files_of_several_ranks,
    files_to_store,
    find_conflicts,
    merge_metadata,
    refuse,
    without_duplicates,
)
from det_jupyter.core.together import on_all, run_on_chief
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import CheckpointStorage, StorageDraft

_OWN_FOLDERS = ".ranks"  # folder in the draft with the files of each rank, until they are merged


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a rank is: its computer, whether it sees the chief's draft, and whether it writes."""

    computer: int
    sees: bool
    writes: bool


def find_owners(places: Sequence[_Place]) -> list[int]:
    """Return for each rank the rank whose draft it writes into.

    That is the chief if it sees the chief's draft, or does not write. Else it is the first rank of
    its computer that writes.
    """
    first: dict[int, int] = {}
    owners = []
    for rank, place in enumerate(places):
        is_with_chief = place.sees or not place.writes
        owners.append(0 if is_with_chief else first.setdefault(place.computer, rank))
    return owners


class ShardedCheckpoint:
    """Writes one checkpoint of all ranks.

    Args:
        distributed: The ranks.
        begin: Returns a draft with this metadata; called on the chief.
        storage: Where it is stored.
        sink: Stores the record of a share.
        gate: Holds up the writing while the disk is full.

    Attributes:
        num_shares: Computers whose files are stored apart; 1: the checkpoint is in one folder.
        size_bytes: The size of the files of all ranks, about.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        begin: Callable[[Mapping[str, Any]], CheckpointDraft],
        storage: CheckpointStorage,
        sink: RecordSink,
        gate: RoomGate | None,
    ) -> None:
        self._distributed = distributed
        self._begin = begin
        self._storage = storage
        self._sink = sink
        self._when_room = partial(write_when_room, gate, storage.location)
        self.size_bytes = 0
        self._draft: CheckpointDraft | None = None  # on the chief
        self._share: StorageDraft | None = None  # on the first rank of another computer
        self._share_folder: Path | None = None
        self._owners = [0] * distributed.size  # by rank: the rank whose draft it writes into
        self.num_shares = 1
        self._on_all = partial(on_all, distributed, catch=BaseException)
        self._on_chief = partial(run_on_chief, distributed, catch=BaseException)

    def upload(
        self,
        ckpt_dir: Folder | None,
        metadata: Mapping[str, Any] | None,
        selector: Selector | None,
    ) -> str:
        """Store the files of all ranks; see CheckpointContext.upload."""
        call = "checkpoint.upload"
        parts = self._on_all(lambda: self._part(call, ckpt_dir, metadata, selector))
        if all(part.is_none for part in parts):
            raise CheckpointError(
                f"{call}: got no folder on any rank, expected one on at least one of them"
            )
        parts, merged = self._agree_on_files(call, parts, ckpt_dir)
        check_steps(merged)
        with self._discarding_on_error():
            # Without files, no access to the storage is needed.
            self.size_bytes = sum(part.size_bytes for part in parts)
            path, uuid = self._open(merged, self.size_bytes, writes=ckpt_dir is not None)
            rank = self._distributed.rank
            mine, size_bytes = files_to_store(parts, rank), parts[rank].size_bytes

            def copy() -> None:
                if ckpt_dir is not None:
                    write = partial(copy_files, ckpt_dir, path, mine)
                    self._when_room(size_bytes, write, partial(remove_files, path, mine))

            self._on_all(copy)
            self._commit(uuid, parts)
        return uuid

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None, needs_bytes: int
    ) -> Iterator[tuple[Path, str]]:
        """Yield a folder for this rank's files; see CheckpointContext.store_path.

        Args:
            metadata: The checkpoint's.
            needs_bytes: The size of the files of all ranks, about: the disk must have room.
        """
        call, rank = "checkpoint.store_path", self._distributed.rank
        parts = self._on_all(lambda: Part(rank=rank, metadata=plain_metadata(metadata)))
        merged, problems = merge_metadata(parts)
        refuse(call, problems)
        check_steps(merged)
        with self._discarding_on_error():
            path, uuid = self._open(merged, needs_bytes, writes=True)
            own = path / _OWN_FOLDERS / str(rank)
            make = partial(own.mkdir, mode=0o700, parents=True, exist_ok=True)
            self._on_all(lambda: self._when_room(0, make))
            try:
                yield own, uuid
                error: BaseException | None = None
            except BaseException as raised:  # the others wait for the outcome
                error = raised

            def written() -> Part:
                if error is not None:
                    raise error
                return Part(rank=rank, found=list_folder(call, own), size_bytes=bytes_in(own))

            parts = self._on_all(written)
            self.size_bytes = sum(part.size_bytes for part in parts)
            parts, _ = self._agree_on_files(call, parts, own)
            self._on_all(lambda: self._merge_folders(path, parts))
            self._commit(uuid, parts)

    def _part(
        self,
        call: str,
        ckpt_dir: Folder | None,
        metadata: Mapping[str, Any] | None,
        selector: Selector | None,
    ) -> Part:
        plain = plain_metadata(metadata)
        rank = self._distributed.rank
        if ckpt_dir is None:
            return Part(rank=rank, metadata=plain, is_none=True)
        found = list_folder(call, ckpt_dir, selector)
        status = os.stat(ckpt_dir)
        place = (self._distributed.cross_rank, status.st_dev, status.st_ino)
        source = place if selector is None else None
        size_bytes = sum(os.path.getsize(os.path.join(ckpt_dir, name)) for name in found.files)
        return Part(rank=rank, found=found, source=source, size_bytes=size_bytes, metadata=plain)

    def _agree_on_files(
        self, call: str, parts: Sequence[Part], folder: Folder | None
    ) -> tuple[list[Part], dict[str, Any]]:
        """Exchange digests; return the parts without duplicates and the merged metadata.

        Raises:
            PartsConflict: Files or metadata contradict each other.
        """
        parts = without_duplicates(parts)
        compared = files_of_several_ranks(parts)
        names = compared & parts[self._distributed.rank].found.files
        digests = self._on_all(
            lambda: {name: digest_of(Path(folder or "", name)) for name in names}
        )
        merged, disputed = merge_metadata(parts)
        refuse(call, find_conflicts(parts, digests) + disputed)
        return parts, merged

    def _open(
        self, metadata: Mapping[str, Any], needs_bytes: int, *, writes: bool
    ) -> tuple[Path, str]:
        """Make the drafts; return the folder of this rank's, and the uuid.

        Args:
            metadata: The checkpoint's.
            needs_bytes: The size of its files, about: the disks must have room.
            writes: Whether this rank has files.
        """

        def begin() -> tuple[Path, str]:
            self._draft = self._begin(metadata)
            return self._draft.open_when_room(needs_bytes), self._draft.uuid

        path, uuid = self._on_chief(begin)
        if self._distributed.cross_size == 1:
            return path, uuid
        computer = self._distributed.cross_rank
        places = self._on_all(
            lambda: _Place(computer, self._storage.draft_path(uuid) is not None, writes)
        )
        self._owners = find_owners(places)
        self._on_all(lambda: self._begin_share(uuid, needs_bytes))
        return self._storage.draft_path(uuid) or path, uuid

    def _begin_share(self, uuid: str, needs_bytes: int) -> None:
        rank = self._distributed.rank
        if rank > 0 and self._owners[rank] == rank:
            begin = partial(self._storage.begin, uuid)
            self._share = self._when_room(needs_bytes, begin)
            self._share_folder = self._share.become_share()

    def _merge_folders(self, path: Path, parts: Sequence[Part]) -> None:
        """Merge the folders in `.ranks`, one for each rank that has written into this draft."""
        folders = path / _OWN_FOLDERS
        for part, owner in zip(parts, self._owners, strict=True):
            if owner == self._distributed.rank:
                mine = files_to_store(parts, part.rank)
                move_files(folders / str(part.rank), path, mine)
        if self._owners[self._distributed.rank] == self._distributed.rank:
            shutil.rmtree(folders)

    def _commit(self, uuid: str, parts: Sequence[Part]) -> None:
        """Commit the shares of other computers, then the chief's draft."""
        shares = [0]
        for part, owner in zip(parts, self._owners, strict=True):
            if owner not in shares and files_to_store(parts, part.rank).files:
                shares.append(owner)
        self.num_shares = len(shares)
        others_bytes = 0
        if self.num_shares > 1:
            others_bytes = sum(self._on_all(lambda: self._commit_share(uuid, shares)))
        elif self._share is not None:
            self._share.discard()

        def commit() -> None:
            assert self._draft is not None
            self._draft.commit(num_shares=len(shares), others_bytes=others_bytes)

        self._on_chief(commit)

    def _commit_share(self, uuid: str, shares: Sequence[int]) -> int:
        """Commit this rank's share, if it has one; return its size in bytes."""
        if self._share is None or self._share_folder is None:
            return 0
        if self._distributed.rank not in shares:
            self._share.discard()
            return 0
        size_bytes = bytes_in(self._share.path)
        self._share.commit()
        self._sink.write(
            CheckpointShare(
                at=time.time(),
                uuid=uuid,
                share=shares.index(self._distributed.rank),
                num_shares=len(shares),
                path=str(self._share_folder),
            )
        )
        return size_bytes

    @contextmanager
    def _discarding_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # an interrupt too: no file may be left
            if self._draft is not None:
                self._draft.discard()
            if self._share is not None:
                self._share.discard()
            if self._share_folder is not None:
                shutil.rmtree(self._share_folder, ignore_errors=True)  # if it was committed
            raise
