"""Output files of processors, and the checkpoints that list them.

    <root>/.part-<uuid>/            the workspace of this run; removed at its end
        rank_0/…  rank_1/…          written since the last checkpoint
    <root>/.outputs-<uuid>/         finished output of this run: a folder for each interval
        part-00000000-00000009/     batches 0 to 9 of the dataset
            rank_0/…  rank_1/…
    <root>/<uuid>/                  a checkpoint
        metadata.json               how many batches are done, and the folders of their output
        pins/<folder>               an empty file for each of these folders, so that it is kept
        reducers/slot_0.pt …        the states of the reducers

A checkpoint is complete or does not exist (see storage/), and lists its parts, so position, files
and reducers change together. Files that a killed run wrote after its last checkpoint are in a
workspace that is never opened again, or in a part that no checkpoint lists. No run writes into the
folder of another run, so each checkpoint stays valid, whichever one a later run continues from.
The cost of a checkpoint depends on the output of its interval, not on earlier output.

A folder that no checkpoint pins is removed when the next run begins. <root> is the folder of the
storage; other kinds of storage are refused.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from det_jupyter.core import CheckpointContext, DistributedContext, read_metadata
from det_jupyter.core.drafts import CheckpointDraft
from det_jupyter.core.together import run_on_chief
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import folder_at

METADATA = "batch_inference"  # key of our part of a checkpoint's metadata
REDUCERS = "reducers"
_OUTPUTS = ".outputs-"
_PINS = "pins"
_PART = re.compile(r"part-(\d+)-(\d+)")
_RANK = re.compile(r"rank_(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Batches `first` to `stop - 1` of the dataset, whose results are in one run's folder."""

    folder: str
    first: int
    stop: int

    def parts(self, root: Path) -> list[Path]:
        """Return the folders of the stretch's intervals, in the order of batches."""
        found = []
        for path in (root / self.folder).glob("part-*"):
            match = _PART.fullmatch(path.name)
            if match and self.first <= int(match[1]) and int(match[2]) < self.stop:
                found.append((int(match[1]), path))
        return [path for _, path in sorted(found)]


class Workspace:
    """The folder into which ranks write between two checkpoints. Create it with `open_workspace`.

    Args:
        path: The folder, the same on all ranks.
        rank: This rank.
        stretches: Batches that earlier runs have processed.
        draft: On the chief, the checkpoint draft to which the folder belongs.
    """

    def __init__(
        self,
        path: Path,
        rank: int,
        stretches: Sequence[Stretch],
        draft: CheckpointDraft | None,
    ) -> None:
        self.path = path
        self.outputs = path / f"rank_{rank}"
        self.reducers = path / REDUCERS
        self._finished = path.parent / path.name.replace(".part-", _OUTPUTS)
        self._stretches = list(stretches)
        self._draft = draft

    def pin(self, path: Path) -> None:
        """Record in a checkpoint's folder which folders of outputs it needs. On the chief only."""
        pins = path / _PINS
        pins.mkdir()
        for name in {self._finished.name, *(s.folder for s in self._stretches)}:
            (pins / name).touch()

    def commit(
        self, checkpoints: CheckpointContext, batches: range, metadata: Mapping[str, Any]
    ) -> Path:
        """Save a checkpoint of what the ranks have written; return its folder. On the chief only.

        Args:
            checkpoints: The storage.
            batches: The batches since the previous checkpoint.
            metadata: The checkpoint's metadata; the stretches (`Stretch`) are added to its entry
                `METADATA`.
        """
        self._finish_part(checkpoints, batches)
        stretches = _with_batches(self._stretches, self._finished.name, batches)
        ours = {**metadata[METADATA], "outputs": [asdict(stretch) for stretch in stretches]}
        draft = checkpoints.begin({**metadata, METADATA: ours})
        try:
            path = draft.open_when_room(0)
            self.pin(path)
            if self.reducers.is_dir():
                self.reducers.rename(path / REDUCERS)
            draft.commit()
        except BaseException:  # an interrupt too: no draft may be left
            draft.discard()
            raise
        self._stretches = stretches
        with checkpoints.restore_path(draft.uuid) as stored:
            return stored

    def _finish_part(self, checkpoints: CheckpointContext, batches: range) -> None:
        """Move the files of the ranks into a part of the finished output, durably."""
        written = [rank for rank in self.path.glob("rank_*") if any(rank.iterdir())]
        if not written:
            return
        if checkpoints.is_uploaded:
            raise CheckpointError(
                "torch_batch_process: the processor has written files on a computer that is not "
                "the master's, and only checkpoints are uploaded; give checkpoint_storage."
                "host_path, a folder that both computers share"
            )
        assert self._draft is not None, "only the chief finishes a part"
        self._draft.sync()
        part = self._finished / f"part-{batches.start:08d}-{max(batches.stop - 1, 0):08d}"
        part.mkdir(mode=0o700, parents=True)
        for rank in written:
            rank.rename(part / rank.name)
        for folder in (part, self._finished, self._finished.parent):
            _sync(folder)


def _with_batches(stretches: Sequence[Stretch], folder: str, batches: range) -> list[Stretch]:
    """Return the stretches, extended by these batches."""
    if stretches and stretches[-1].folder == folder:
        *earlier, last = stretches
        return [*earlier, Stretch(folder=folder, first=last.first, stop=batches.stop)]
    return [*stretches, Stretch(folder=folder, first=batches.start, stop=batches.stop)]


@contextmanager
def open_workspace(
    checkpoints: CheckpointContext,
    distributed: DistributedContext,
    steps_completed: int,
    stretches: Sequence[Stretch],
) -> Iterator[Workspace]:
    """Yield a workspace on the file system of the checkpoints, on all ranks. Collective.

    It is the draft of a checkpoint that is never committed: it is removed at the end, or, if the
    chief is killed, when the next checkpoint is begun.

    Raises:
        CheckpointError: The storage is no folder, or this rank does not see the folder.
    """
    location = checkpoints.location
    if folder_at(location) is None:
        raise CheckpointError(
            f"torch_batch_process: checkpoint_storage: got {location}, expected a folder: the "
            "files that processors write stay beside the checkpoints"
        )
    described = {"steps_completed": steps_completed}
    draft = checkpoints.begin(described) if distributed.is_chief else None
    try:
        shared = run_on_chief(distributed, draft.open if draft else Path)  # runs on the chief only
        if not shared.is_dir():
            raise CheckpointError(
                f"rank {distributed.rank} does not see the checkpoint folder {shared.parent}; "
                "checkpoint_storage.host_path has to be a folder that all computers share"
            )
        workspace = Workspace(shared, distributed.rank, stretches, draft)
        if distributed.is_chief:
            workspace.pin(shared)
            _remove_unneeded(shared.parent)
        yield workspace
    finally:
        if draft is not None:
            draft.discard()


def _remove_unneeded(root: Path) -> None:
    """Remove the outputs that neither a checkpoint nor the workspace of a run pins."""
    # In this order, because a run pins its folder before it creates it.
    folders = list(root.glob(f"{_OUTPUTS}*"))
    needed = {pin.name for pin in root.glob(f"*/{_PINS}/*")}
    for folder in folders:
        if folder.name not in needed:
            shutil.rmtree(folder, ignore_errors=True)


def stretches_in(ours: Mapping[str, Any] | None) -> tuple[Stretch, ...]:
    """Return the stretches of results from `ours`, our entry of a checkpoint's metadata."""
    return tuple(Stretch(**stretch) for stretch in ours["outputs"]) if ours else ()


def output_files(checkpoint: Any) -> list[Path]:
    """Return the files that the processors wrote, in the order of batches, ranks and names.

    Args:
        checkpoint: A Checkpoint (`experiment.checkpoints()[-1]`), an Outcome, or a folder.

    Raises:
        CheckpointError: The checkpoint does not exist.
    """
    path = Path(getattr(checkpoint, "path", checkpoint))
    return [
        file
        for stretch in stretches_in(read_metadata(path).get(METADATA))
        for part in stretch.parts(path.parent)
        for rank in sorted(part.iterdir(), key=_rank_of)
        for file in sorted(rank.rglob("*"))
        if file.is_file()
    ]


def _rank_of(folder: Path) -> int:
    match = _RANK.fullmatch(folder.name)
    return int(match[1]) if match else -1


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
