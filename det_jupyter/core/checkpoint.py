"""Saves and restores folders as checkpoints. Their content is not interpreted.

The chief stores them, or with `shard=True` all ranks together (sharded.py).
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from det_jupyter.contract.run.journal import CheckpointDeleted
from det_jupyter.contract.run.room import RoomGate
from det_jupyter.contract.trial.origin import Origin, changed_hparams
from det_jupyter.core.argument_checks import ContextPart, find_choice_problem
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.drafts import CheckpointDraft, check_steps, plain_metadata, versions
from det_jupyter.core.folders import Folder, FolderListing, Selector, copy_files, list_folder
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.sharded import ShardedCheckpoint
from det_jupyter.core.together import local_chief_first, on_all
from det_jupyter.core.wanted import await_shares, fetch
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import METADATA_FILE, CheckpointStorage, path_of, read_metadata


class DownloadMode(Enum):
    """How the ranks of a computer download a checkpoint.

    LocalWorkersShareDownload: all must call it; the first one copies, the others wait.
    NoSharedDownload: each one copies, into a folder of its own.
    """

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext(ContextPart):
    """Stores, restores and deletes checkpoints. Every rank may read.

    Args:
        storage: Where they are stored.
        sink: Stores the records of checkpoints that were saved and deleted.
        distributed: The ranks.
        belongs_to: Ids of experiment and trial, for the metadata of each checkpoint.
        wanted: The folder for requests to the agent (wanted.py); it may not exist.
        gate: Holds up the writing of checkpoints while the disk is full.
        latest: Uuid of the trial's last checkpoint, whose size is the estimate for the next.
        hparams: The trial's hyperparameters; None: they are not compared with a checkpoint's.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        sink: RecordSink,
        distributed: DistributedContext,
        belongs_to: Mapping[str, Any],
        wanted: Path | None = None,
        gate: RoomGate | None = None,
        latest: str | None = None,
        hparams: Mapping[str, Any] | None = None,
    ) -> None:
        self._hparams = hparams
        self._gate = gate
        self._latest = latest
        self._last_bytes = 0  # size of the last checkpoint that this process has stored
        self._wanted = wanted
        self._storage = storage
        self._sink = sink
        self._distributed = distributed
        self._belongs_to = dict(belongs_to)
        self.has_begun = False
        self.timed: Callable[[], AbstractContextManager[None]] = nullcontext  # around saving
        self._in_shares: set[str] = set()  # uuids of checkpoints that no computer has whole

    def begin(
        self,
        metadata: Mapping[str, Any] | None,
        origin: Origin | None = None,
        *,
        instead_of_chief: bool = False,
    ) -> CheckpointDraft:
        """Return a draft to fill and commit later. Does not access the storage yet.

        Args:
            metadata: Anything JSON can hold; `steps_completed` is required.
            origin: The origin, which is written into the draft before it is committed.
            instead_of_chief: Allow it on another rank, which stores it because others have ended.
        """
        if not self._distributed.is_chief and not instead_of_chief:
            raise RuntimeError(
                "checkpoint: only the chief (rank 0) stores checkpoints, and this is rank "
                f"{self._distributed.rank}; guard the call with "
                "`if context.distributed.rank == 0`, or give shard=True on all ranks"
            )
        plain = plain_metadata(metadata)
        check_steps(plain)
        self.has_begun = True
        # If the metadata is that of another checkpoint, these fields are replaced.
        own = {"uuid": str(uuid.uuid4()), **self._belongs_to, **versions()}
        whole = {**own, **plain, **own}
        return CheckpointDraft(self._storage, self._sink, whole, self._gate, origin)

    @contextmanager
    def store_path(
        self,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        origin: Origin | None = None,
    ) -> Iterator[tuple[Path, str]]:
        """Yield an empty folder to fill, and the uuid of its checkpoint.

        The checkpoint exists after the block; if the block raises, it is discarded.

        Args:
            metadata: Anything JSON can hold; `steps_completed` is required.
            shard: Whether all ranks store files: all must call it in step. Each gets a folder of
                its own, and the checkpoint is the union of the folders and of the metadata.
            origin: What `Checkpoint.load` needs; that of rank 0 counts.

        Raises:
            ValueError: Metadata that cannot be stored; nothing is written then.
            CheckpointError: Several ranks have different files or metadata of the same name.
            RuntimeError: A rank other than the chief calls it without `shard`.
        """
        self.check_open("checkpoint.store_path")
        if shard:
            sharded = self._sharded(origin)
            size = self._expected_bytes()
            with self.timed(), sharded.store_path(metadata, size) as (path, uuid):
                yield path, uuid
            self._note_stored(sharded, uuid)
            return
        draft = self.begin(metadata, origin)
        with self.timed(), draft.filled(self._expected_bytes()) as path:
            yield path, draft.uuid
        self._last_bytes = draft.size_bytes

    def upload(
        self,
        ckpt_dir: Folder | None,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
        origin: Origin | None = None,
    ) -> str:
        """Store a copy of the folder as a checkpoint and return its uuid.

        Args:
            ckpt_dir: The folder. With `shard`, None on a rank that stores no files.
            metadata: Anything JSON can hold; `steps_completed` is required.
            shard: Whether all ranks upload: all must call it in step. The checkpoint is the union
                of their files and of their metadata. A folder that several ranks of a computer
                give is stored once.
            selector: Returns whether to store a relative path (that of a folder ends with "/").
            origin: What `Checkpoint.load` needs; that of rank 0 counts.

        Raises:
            CheckpointError: There is no such folder; or several ranks have different files or
                metadata of the same name. Nothing is written then.
            ValueError: Metadata that cannot be stored; nothing is written then.
            RuntimeError: A rank other than the chief calls it without `shard`.
        """
        self.check_open("checkpoint.upload")
        if shard:
            sharded = self._sharded(origin)
            with self.timed():
                uuid = sharded.upload(ckpt_dir, metadata, selector)
            self._note_stored(sharded, uuid)
            return uuid
        draft = self.begin(metadata, origin)
        source = ckpt_dir or ""
        found = list_folder("checkpoint.upload", ckpt_dir, selector)
        needs_bytes = sum(os.path.getsize(os.path.join(source, name)) for name in found.files)
        try:
            with self.timed():
                draft.write(lambda path: copy_files(source, path, found), needs_bytes)
                draft.commit()
        except BaseException:  # an interrupt too: no draft may be left
            draft.discard()
            raise
        return draft.uuid

    @contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> Iterator[Path]:
        """Yield a folder with the files of a checkpoint, for reading only.

        If the storage is a folder, nothing is copied, and the selector and mode have no effect.

        Raises:
            CheckpointError: It does not exist.
        """
        _check_mode("restore_path", download_mode)
        with self._reading("restore_path", storage_id, selector) as path:
            self._note_other_hparams(storage_id, path)
            yield path

    def _note_other_hparams(self, storage_id: str, path: Path) -> None:
        """Write a notice, once and on the chief, if the checkpoint has other hyperparameters."""
        hparams, self._hparams = self._hparams, None
        if not self._distributed.is_chief or storage_id != self._latest:
            return
        if changes := changed_hparams(path, hparams):
            sys.stderr.write(
                f"training goes on with other hyperparameters: {', '.join(changes)}. Optimizers "
                "and schedulers that are restored from the checkpoint keep its values, unless "
                "the code sets them after that\n"
            )

    def download(
        self,
        storage_id: str,
        ckpt_dir: Folder,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copy a checkpoint into the folder, which is created if necessary.

        Collective among the ranks of a computer, except in the mode NoSharedDownload.

        Args:
            storage_id: The checkpoint's uuid.
            download_mode: Whether the ranks of a computer share one copy.
            selector: Returns whether to copy a relative path (that of a folder ends with "/"). A
                shared copy contains the files that any of the ranks selects.

        Raises:
            CheckpointError: It does not exist.
            ValueError: Ranks that share a copy have passed different folders.
            PeerFailed: Another one of these ranks has failed, in its selector, for example.
        """
        _check_mode("download", download_mode)

        with ExitStack() as reading:

            def choose() -> tuple[Path, FolderListing, str]:
                opened = self._reading("download", storage_id, selector)
                path = reading.enter_context(opened)
                found = list_folder("checkpoint.download", path, selector)
                return path, found, os.path.realpath(ckpt_dir)

            if download_mode is DownloadMode.NoSharedDownload:
                path, found, _ = choose()
                copy_files(path, ckpt_dir, found)
                return
            choices = on_all(self._distributed, choose, is_local=True, catch=BaseException)
            targets = dict.fromkeys(target for _, _, target in choices)
            if len(targets) > 1:
                raise ValueError(
                    f"checkpoint.download: got different folders on the ranks of this computer "
                    f"({', '.join(targets)}), which share one copy; give the same, or "
                    "DownloadMode.NoSharedDownload"
                )
            files = frozenset[str]().union(*(found.files for _, found, _ in choices))
            folders = frozenset[str]().union(*(found.folders for _, found, _ in choices))
            with local_chief_first(self._distributed):
                if self._distributed.local_rank == 0:
                    opened = self._reading("download", storage_id, files.__contains__)
                    path = reading.enter_context(opened)
                    copy_files(path, ckpt_dir, FolderListing(files, folders))

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata that the checkpoint was stored with."""
        with self._reading("get_metadata", storage_id, METADATA_FILE.__eq__) as path:
            return read_metadata(path)

    @property
    def location(self) -> str:
        """Where checkpoints are stored: a folder, or scheme://... of another kind of storage."""
        return self._storage.location

    @property
    def is_uploaded(self) -> bool:
        """Whether an agent uploads checkpoints: what is saved on this computer is a copy."""
        return self._wanted is not None and self._wanted.is_dir()

    def path_of(self, storage_id: str) -> str:
        """Return the path of the checkpoint, as it is recorded in the database and shown."""
        return path_of(self._storage, storage_id)

    def delete(self, storage_id: str) -> None:
        """Remove the checkpoint from storage, if it is there. Any rank may call it."""
        _check_uuid("delete", storage_id)
        if storage_id in self._in_shares:
            self._sink.write(CheckpointDeleted(at=time.time(), uuid=storage_id))
            return
        if not self._storage.files(storage_id):
            # Not in this storage: a checkpoint elsewhere is not deleted, but for an uploaded one.
            if self.is_uploaded:
                self._sink.write(CheckpointDeleted(at=time.time(), uuid=storage_id))
            return
        try:
            self._storage.delete(storage_id)
        except CheckpointError:
            if self._storage.files(storage_id):
                raise
            # It is incomplete now; the next writer removes its remaining files.
        self._sink.write(CheckpointDeleted(at=time.time(), uuid=storage_id))

    def _sharded(self, origin: Origin | None) -> ShardedCheckpoint:
        begin = partial(self.begin, origin=origin)
        return ShardedCheckpoint(self._distributed, begin, self._storage, self._sink, self._gate)

    def _note_stored(self, sharded: ShardedCheckpoint, uuid: str) -> None:
        self._last_bytes = sharded.size_bytes
        if sharded.num_shares > 1:
            self._in_shares.add(uuid)

    def _expected_bytes(self) -> int:
        """Return the size of the next checkpoint, if it is like the last; 0 if that is unknown."""
        is_folder = self._gate is not None and os.path.isabs(self.location)
        if not self._last_bytes and is_folder and self._latest is not None:
            self._last_bytes = sum(self._storage.files(self._latest).values())
        return self._last_bytes

    def _reading(
        self, call: str, uuid: object, takes: Callable[[str], bool] | None
    ) -> AbstractContextManager[Path]:
        name = _check_uuid(call, uuid)
        if self._wanted is not None and self.is_uploaded and not self._storage.files(name):
            fetch(self._wanted, name, is_saved=name in self._in_shares)
        elif name in self._in_shares:
            await_shares(self._storage, name)
        return self._storage.reading(name, takes)


def _check_mode(call: str, mode: object) -> None:
    if problem := find_choice_problem(mode, DownloadMode):
        raise ValueError(f"checkpoint.{call}: download_mode: {problem}")


def _check_uuid(call: str, uuid: object) -> str:
    if isinstance(uuid, str):
        return uuid
    remedy = "info.latest_checkpoint is None where training begins: `if uuid is not None: ...`"
    raise CheckpointError(
        f"checkpoint.{call}: got {uuid!r:.100}, expected the uuid of a checkpoint"
        f"{f'; {remedy}' if uuid is None else ', a string'}"
    )
