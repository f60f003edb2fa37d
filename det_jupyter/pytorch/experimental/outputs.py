"""What processors write, and the checkpoint that makes it count.

    <root>/.part-<uuid>/              the workspace of this run; gone with it
        rank_0/…  rank_1/…            written since the last checkpoint
    <root>/<uuid>/                    a checkpoint: everything up to steps_completed, and no more
        part-00000000-00000009/       batches 0 to 9 of the dataset
            rank_0/…  rank_1/…
        part-00000010-00000019/…
        reducers/slot_0.pt …          what the reducers had counted
        metadata.json                 steps_completed: batches of the dataset that are done

A checkpoint is complete or not there (see storage), so position, files and counts change in one
moment. What a killed run wrote after its last checkpoint was never in one. Parts of earlier
checkpoints are linked, not copied: each checkpoint stands alone, and can be deleted alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter.core import CheckpointContext, DistributedContext
from det_jupyter.core.checkpoint import CheckpointDraft
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.settling import run_on_chief

REDUCERS = "reducers"
_PART = re.compile(r"part-(\d+)-(\d+)")
_RANK = re.compile(r"rank_(\d+)")


class Workspace:
    """Where the ranks write between two checkpoints. Make and close it with `open_workspace`.

    Args:
        path: The same folder on all ranks.
        rank: This rank.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self.path = path
        self.outputs = path / f"rank_{rank}"
        self.reducers = path / REDUCERS

    def commit(
        self,
        checkpoints: CheckpointContext,
        *,
        batches: range,
        previous: Path | None,
        metadata: Mapping[str, Any],
    ) -> Path:
        """Make a checkpoint of what the ranks have written, and return its folder. Chief only.

        Args:
            checkpoints: The trial's.
            batches: What was processed since the previous checkpoint.
            previous: Its folder.
            metadata: Goes into the checkpoint.
        """
        draft = checkpoints.begin(metadata)
        try:
            path = draft.open()
            if previous is not None:
                for part in previous.glob("part-*"):
                    _link_tree(part, path / part.name)
            written = [rank for rank in self.path.glob("rank_*") if any(rank.iterdir())]
            if written:
                part = path / f"part-{batches.start:08d}-{max(batches.stop - 1, 0):08d}"
                _link_tree(self.path, part, only=written)
            if self.reducers.is_dir():
                _link_tree(self.reducers, path / REDUCERS)
            draft.commit()
        except BaseException:
            draft.discard()
            raise
        self._clear()
        with checkpoints.restore_path(draft.uuid) as stored:
            return stored

    def _clear(self) -> None:
        for folder in self.path.iterdir():
            shutil.rmtree(folder)


@contextmanager
def open_workspace(
    checkpoints: CheckpointContext, distributed: DistributedContext, steps_completed: int
) -> Iterator[Workspace]:
    """Give all ranks a workspace on the checkpoints' own file system. Collective.

    It is a checkpoint that is never committed: it vanishes at the end, and, if the chief is
    killed, with the next checkpoint that anyone begins.
    """
    draft: CheckpointDraft | None = None
    if distributed.is_chief:
        draft = checkpoints.begin({"steps_completed": steps_completed})
    try:
        shared = run_on_chief(distributed, lambda: _open(draft))
        if not shared.is_dir():
            raise CheckpointError(
                f"rank {distributed.rank} does not see the checkpoint folder {shared.parent}; "
                "checkpoint_storage.host_path has to be a folder that all computers share"
            )
        yield Workspace(shared, distributed.rank)
    finally:
        if draft is not None:
            draft.discard()


def output_files(checkpoint: Any) -> list[Path]:
    """Return the files that the processors wrote, in the order of batches, ranks and names.

    Args:
        checkpoint: A Checkpoint (`experiment.checkpoints()[-1]`), an Outcome, or a folder.

    Raises:
        CheckpointError: There is no such folder any more.
    """
    root = Path(getattr(checkpoint, "path", checkpoint))
    if not root.is_dir():
        raise CheckpointError(f"{root}: there is no such checkpoint (any more)")
    parts = {part: match for part in root.iterdir() if (match := _PART.fullmatch(part.name))}
    return [
        file
        for part in sorted(parts, key=lambda part: int(parts[part][1]))
        for rank in sorted(part.iterdir(), key=_rank_of)
        for file in sorted(rank.rglob("*"))
        if file.is_file()
    ]


def _open(draft: CheckpointDraft | None) -> Path:
    assert draft is not None, "only the chief opens it"
    return draft.open()


def _rank_of(folder: Path) -> int:
    match = _RANK.fullmatch(folder.name)
    return int(match[1]) if match else -1


def _link_tree(source: Path, target: Path, only: list[Path] | None = None) -> None:
    """Make `target` a tree of links to the files under `source`; copies where links cannot be."""
    for top in [source] if only is None else only:
        for folder, _, names in os.walk(top):
            here = target / Path(folder).relative_to(source)
            here.mkdir(parents=True, exist_ok=True)
            for name in names:
                _link(Path(folder) / name, here / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(source, target, follow_symlinks=False)
