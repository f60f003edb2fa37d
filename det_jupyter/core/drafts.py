"""A checkpoint that is being written, and the metadata of checkpoints."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata as packages
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from det_jupyter._version import __version__
from det_jupyter.contract.run.journal import CheckpointSaved, CheckpointShare
from det_jupyter.contract.run.room import RoomGate, write_when_room
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core.argument_checks import checked_steps, to_json_value
from det_jupyter.core.journal import RecordSink
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import METADATA_FILE, CheckpointStorage, StorageDraft, path_of

T = TypeVar("T")


class CheckpointDraft:
    """A checkpoint that is being written; created by CheckpointContext.begin on the chief."""

    def __init__(
        self,
        storage: CheckpointStorage,
        sink: RecordSink,
        metadata: Mapping[str, Any],
        gate: RoomGate | None = None,
        origin: Origin | None = None,
    ) -> None:
        self._origin = origin
        self.uuid = str(metadata["uuid"])
        self._storage = storage
        self._sink = sink
        self._metadata = dict(metadata)
        self._draft: StorageDraft | None = None
        self._gate = gate
        self._on_request = gate is not None and gate.is_leaving()
        self.size_bytes = 0  # after the commit

    def write(self, fill: Callable[[Path], None], needs_bytes: int) -> Path:
        """Open the draft, let `fill` write its files, sync them, and return the folder.

        If the disk is full, it waits until there is room, and writes all of it again (room.py).
        May run in another thread.

        Args:
            fill: Writes the files into the empty folder that it is given.
            needs_bytes: The size of the files, about.
        """

        def write() -> Path:
            path = self._open_noted()
            fill(path)
            self.sync()
            return path

        path = self._when_room(needs_bytes, write, self.discard)
        self.note(is_written=True)
        return path

    def open_when_room(self, needs_bytes: int) -> Path:
        """Return the empty folder to fill, once there is room for files of that size (room.py)."""
        return self._when_room(needs_bytes, self._open_noted, self.discard)

    def open(self) -> Path:
        """Return the empty folder to fill, after removing drafts of writers that were killed.

        May run in another thread, as `sync` may; writes no record. The control page does not have
        it: such a folder may be open for hours.
        """
        self._draft = self._storage.begin(self.uuid)
        return self._draft.path

    def _open_noted(self) -> Path:
        path = self.open()
        self.note()
        return path

    def sync(self) -> None:
        """Write the present files to the disk, so that `commit` takes less time."""
        self._opened().sync()

    def commit(self, *, num_shares: int = 1, others_bytes: int = 0) -> None:
        """Make the draft a checkpoint and write its record; if this raises, neither is done.

        Args:
            num_shares: Number of computers that commit files of the checkpoint separately, this
                one included. If there are several, this draft is a share.
            others_bytes: The size of the others' files.
        """
        draft = self._opened()
        self.note()
        text = json.dumps(self._metadata, indent=2, default=str)
        file = draft.path / METADATA_FILE

        def write() -> None:
            if self._origin is not None:
                self._origin.write(draft.path)
            file.write_text(text, encoding="utf-8")

        self._when_room(0, write, partial(file.unlink, missing_ok=True))
        self.size_bytes = size_bytes = others_bytes + bytes_in(draft.path)
        share = draft.become_share() if num_shares > 1 else None
        if self._gate is not None:
            self._gate.note_unsent(self.uuid)
        try:
            draft.commit()
            if share is not None:
                self._sink.write(
                    CheckpointShare(
                        at=time.time(),
                        uuid=self.uuid,
                        share=0,
                        num_shares=num_shares,
                        path=str(share),
                    )
                )
            record = CheckpointSaved(
                at=time.time(),
                uuid=self.uuid,
                steps_completed=self._metadata["steps_completed"],
                path=path_of(self._storage, self.uuid),
                size_bytes=size_bytes,
                metadata=self._metadata,
                on_request=self._on_request,
            )
            self._sink.write(record)
        except Exception:  # without a record the master would never delete the checkpoint
            with suppress(OSError, CheckpointError):  # report the first failure
                self._storage.delete(self.uuid)
            if share is not None:
                shutil.rmtree(share, ignore_errors=True)
            raise
        self.note(is_open=False)

    def discard(self) -> None:
        """Remove the draft. Idempotent; does nothing before `open`."""
        if self._draft is not None:
            self._draft.discard()
            self.note(is_open=False)

    def note(self, **stage: bool) -> None:
        """Record how far it is, by default that it is being written: it is not ended meanwhile."""
        if self._gate is not None:
            self._gate.note_draft(**stage)

    @contextmanager
    def filled(self, needs_bytes: int) -> Iterator[Path]:
        """Yield the empty folder to fill; commit after the block, or discard if it raises.

        Args:
            needs_bytes: The size of the files, about: the disk must have room for them.
        """
        try:
            yield self.open_when_room(needs_bytes)
            self.commit()
        except BaseException:  # an interrupt too: no draft may be left
            self.discard()
            raise

    def _when_room(
        self, needs_bytes: int, write: Callable[[], T], undo: Callable[[], object]
    ) -> T:
        return write_when_room(self._gate, self._storage.location, needs_bytes, write, undo)

    def _opened(self) -> StorageDraft:
        if self._draft is None:
            raise RuntimeError("checkpoint: this one has no folder yet; call open() first")
        return self._draft


def plain_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata as JSON types; empty for None.

    Raises:
        ValueError: It is not a dict, or a value is not JSON; the message has its path.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise ValueError(
            f"checkpoint: metadata: got {type(metadata).__name__}, expected a dict with "
            "steps_completed, the batches trained"
        )
    if "steps_completed" in metadata:  # `steps_completed` has narrower bounds than other numbers
        check_steps(metadata)
    plain: dict[str, Any] = to_json_value("checkpoint: metadata", metadata)
    return plain


def check_steps(metadata: Mapping[str, Any]) -> None:
    """Check `steps_completed` in the metadata of a checkpoint.

    Raises:
        ValueError: It is missing, or not a number of batches.
    """
    try:
        checked_steps(metadata.get("steps_completed"))
    except ValueError as error:
        raise ValueError(f"checkpoint: metadata: {error}, the batches trained") from None


def bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder, without hard links of files elsewhere."""
    return sum(map(_own_bytes, folder.rglob("*")))


def _own_bytes(file: Path) -> int:
    """Return the size of a file; 0 if it is a hard link to a file that exists elsewhere too."""
    status = file.stat()
    return status.st_size if S_ISREG(status.st_mode) and status.st_nlink == 1 else 0


def versions() -> dict[str, str]:
    """Return the versions of det_jupyter, Python and torch, for the metadata."""
    found = {"det_jupyter_version": __version__, "python_version": platform.python_version()}
    if "torch" in sys.modules:
        import torch  # waits if another thread is importing it

        found["torch_version"] = torch.__version__
        return found
    with suppress(packages.PackageNotFoundError):  # checkpoints do not need torch
        found["torch_version"] = packages.version("torch")
    return found
