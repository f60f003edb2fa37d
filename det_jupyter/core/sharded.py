"""A checkpoint that all ranks write together. All ranks must call the same in step.

    each rank                   exchange                            only then
    checks what it has          offers (shard_union.py), digests    the chief makes a draft
    copies its files into it    whether that went well              the chief commits, or discards

A failure on one rank is raised on all: its own error there, PeerFailed elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.drafts import CheckpointDraft, check_steps, plain_metadata
from det_jupyter.core.folders import (
    Folder,
    Selector,
    copy_files,
    digest_of,
    list_folder,
    move_files,
)
from det_jupyter.core.lost import PeerFailed
from det_jupyter.core.shard_union import (
    Offer,
    find_conflicts,
    in_lines,
    merge_metadata,
    shared_files,
    stored_by,
    without_copies,
)
from det_jupyter.errors import CheckpointError
from det_jupyter.words import error_text

T = TypeVar("T")

_OWN_FOLDERS = ".ranks"  # in the draft, until the ranks' files are put together


class ShardedCheckpoint:
    """One checkpoint of all ranks.

    Args:
        distributed: The ranks.
        begin: Makes the draft, on the chief.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        begin: Callable[[Mapping[str, Any]], CheckpointDraft],
    ) -> None:
        self._distributed = distributed
        self._begin = begin
        self._draft: CheckpointDraft | None = None

    def upload(
        self,
        ckpt_dir: Folder | None,
        metadata: Mapping[str, Any] | None,
        selector: Selector | None,
    ) -> str:
        """Store the files of all ranks; see CheckpointContext.upload."""
        call, rank = "checkpoint.upload", self._distributed.rank
        offers = self._on_all(lambda: self._offer(call, ckpt_dir, metadata, selector))
        if all(offer.is_none for offer in offers):
            raise CheckpointError(
                f"{call}: got no folder on any rank, expected one on at least one of them"
            )
        offers, merged = self._agree(call, offers, ckpt_dir)
        check_steps(merged)
        with self._discarding():
            path, uuid = self._open(merged)
            mine = stored_by(offers, rank)
            folders = offers[rank].folders
            self._on_all(
                lambda: (
                    copy_files(ckpt_dir, path, files=mine, folders=folders)
                    if ckpt_dir is not None
                    else None
                )
            )
            self._on_chief(self._commit)
        return uuid

    @contextmanager
    def store_path(self, metadata: Mapping[str, Any] | None) -> Iterator[tuple[Path, str]]:
        """Yield a folder for this rank's files; see CheckpointContext.store_path."""
        call, rank = "checkpoint.store_path", self._distributed.rank
        offers = self._on_all(lambda: Offer(rank=rank, metadata=plain_metadata(metadata)))
        merged, problems = merge_metadata(offers)
        _refuse(call, problems)
        check_steps(merged)
        with self._discarding():
            path, uuid = self._open(merged)
            own = path / _OWN_FOLDERS / str(rank)
            self._on_all(lambda: own.mkdir(mode=0o700, parents=True))
            try:
                yield own, uuid
                error: BaseException | None = None
            except BaseException as raised:  # the others wait for the outcome
                error = raised
            offers = self._on_all(lambda: self._written(call, own, error))
            offers, _ = self._agree(call, offers, own)
            self._on_chief(lambda: self._unite(path, offers))

    def _offer(
        self,
        call: str,
        ckpt_dir: Folder | None,
        metadata: Mapping[str, Any] | None,
        selector: Selector | None,
    ) -> Offer:
        """Return what this rank has."""
        plain = plain_metadata(metadata)
        rank = self._distributed.rank
        if ckpt_dir is None:
            return Offer(rank=rank, metadata=plain, is_none=True)
        found = list_folder(call, ckpt_dir, selector)
        status = os.stat(ckpt_dir)
        place = (self._distributed.cross_rank, status.st_dev, status.st_ino)
        return Offer(
            rank=rank,
            files=found.files,
            folders=found.folders,
            source=place if selector is None else None,
            metadata=plain,
        )

    def _written(self, call: str, own: Path, error: BaseException | None) -> Offer:
        if error is not None:
            raise error
        found = list_folder(call, own)
        return Offer(rank=self._distributed.rank, files=found.files, folders=found.folders)

    def _agree(
        self, call: str, offers: Sequence[Offer], folder: Folder | None
    ) -> tuple[list[Offer], dict[str, Any]]:
        """Return what each rank stores, and the metadata of all.

        Raises:
            CheckpointError: It cannot be stored together.
        """
        offers = without_copies(offers)
        compared = shared_files(offers)
        names = compared & offers[self._distributed.rank].files
        digests = self._on_all(
            lambda: {name: digest_of(Path(folder or "", name)) for name in names}
        )
        merged, disputed = merge_metadata(offers)
        _refuse(call, find_conflicts(offers, digests) + disputed)
        return offers, merged

    def _open(self, metadata: Mapping[str, Any]) -> tuple[Path, str]:
        """Return the draft's folder, and the name of the checkpoint."""

        def begin() -> tuple[Path, str]:
            self._draft = self._begin(metadata)
            return self._draft.open(), self._draft.uuid

        return self._on_chief(begin)

    def _unite(self, path: Path, offers: Sequence[Offer]) -> None:
        """Put the ranks' files together, and commit (the chief)."""
        folders = path / _OWN_FOLDERS
        for offer in offers:
            own = folders / str(offer.rank)
            move_files(own, path, files=stored_by(offers, offer.rank), folders=offer.folders)
        shutil.rmtree(folders)
        self._commit()

    def _commit(self) -> None:
        assert self._draft is not None
        self._draft.commit()

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Discard the draft if the block raises."""
        try:
            yield
        except BaseException:
            if self._draft is not None:
                self._draft.discard()
            raise

    def _on_all(self, do: Callable[[], T]) -> list[T]:
        """Return what `do` returns on each rank, in the order of ranks."""
        value, error = _attempt(do)
        everyone = self._distributed.allgather((value, error_text(error) if error else ""))
        if error is not None:
            raise error
        _raise_first([failure for _, failure in everyone])
        return [each for each, _ in everyone]

    def _on_chief(self, do: Callable[[], T]) -> T:
        """Return what `do` returns on the chief."""
        value, error = _attempt(do) if self._distributed.is_chief else (None, None)
        outcome: tuple[Any, str] = (value, error_text(error) if error else "")
        value, failure = self._distributed.broadcast(outcome)
        if error is not None:
            raise error
        _raise_first([failure])
        return cast("T", value)


def _attempt(do: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return do(), None
    except BaseException as error:  # raised again once the other ranks have it
        return None, error


def _raise_first(failures: Sequence[str]) -> None:
    for rank, failure in enumerate(failures):
        if failure:
            raise PeerFailed(rank, failure)


def _refuse(call: str, problems: Sequence[str]) -> None:
    if problems:
        raise CheckpointError(
            in_lines(f"{call}: the ranks' parts cannot be one checkpoint", problems)
        )
