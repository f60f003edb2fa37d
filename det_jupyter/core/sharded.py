"""A checkpoint that all ranks write together. All ranks must call the same in step.

    each rank                   exchange                            only then
    checks what it has          offers (shard_union.py), digests    the chief makes a draft
    copies its files into it    whether that went well              the chief commits, or discards

A failure on one rank is raised on all (together.py), an interrupt too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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
from det_jupyter.core.shard_union import (
    Offer,
    find_conflicts,
    in_lines,
    merge_metadata,
    shared_files,
    stored_by,
    without_copies,
)
from det_jupyter.core.together import on_all, run_on_chief
from det_jupyter.errors import CheckpointError, PartsConflict

_OWN_FOLDERS = ".ranks"  # in the draft, until the ranks' files are put together


class ShardedCheckpoint:
    """One checkpoint of all ranks."""

    def __init__(
        self,
        distributed: DistributedContext,
        begin: Callable[[Mapping[str, Any]], CheckpointDraft],
    ) -> None:
        self._distributed = distributed
        self._begin = begin
        self._draft: CheckpointDraft | None = None
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
        offers = self._on_all(lambda: self._offer(call, ckpt_dir, metadata, selector))
        if all(offer.is_none for offer in offers):
            raise CheckpointError(
                f"{call}: got no folder on any rank, expected one on at least one of them"
            )
        offers, merged = self._agree(call, offers, ckpt_dir)
        check_steps(merged)
        with self._discarding():
            path, uuid = self._open(merged)
            mine = stored_by(offers, self._distributed.rank)

            def copy() -> None:
                if ckpt_dir is not None:  # else this computer needs no access to the storage
                    copy_files(ckpt_dir, path, mine)

            self._on_all(copy)
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
        plain = plain_metadata(metadata)
        rank = self._distributed.rank
        if ckpt_dir is None:
            return Offer(rank=rank, metadata=plain, is_none=True)
        found = list_folder(call, ckpt_dir, selector)
        status = os.stat(ckpt_dir)
        place = (self._distributed.cross_rank, status.st_dev, status.st_ino)
        source = place if selector is None else None
        return Offer(rank=rank, found=found, source=source, metadata=plain)

    def _written(self, call: str, own: Path, error: BaseException | None) -> Offer:
        if error is not None:
            raise error
        return Offer(rank=self._distributed.rank, found=list_folder(call, own))

    def _agree(
        self, call: str, offers: Sequence[Offer], folder: Folder | None
    ) -> tuple[list[Offer], dict[str, Any]]:
        """Return what each rank stores, and the metadata of all."""
        offers = without_copies(offers)
        compared = shared_files(offers)
        names = compared & offers[self._distributed.rank].found.files
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
            move_files(folders / str(offer.rank), path, stored_by(offers, offer.rank))
        shutil.rmtree(folders)
        self._commit()

    def _commit(self) -> None:
        assert self._draft is not None
        self._draft.commit()

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._draft is not None:
                self._draft.discard()
            raise


def _refuse(call: str, problems: Sequence[str]) -> None:
    if problems:
        raise PartsConflict(
            in_lines(f"{call}: the ranks' parts cannot be one checkpoint", problems)
        )
