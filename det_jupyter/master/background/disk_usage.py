"""What uses space in the master's data folder, and which of it can be freed without loss.

Only files that nothing refers to are freed:

    leftovers    run folders, traces and TensorBoard files of experiments that were deleted;
                 checkpoints that a killed rank has not completed
    blobs, code  captured data that no experiment refers to, older than an hour (cleanup.py)
    logs         rotated logs; logs of fork servers and bridges without a new line for a day
                 are emptied, not deleted: a process may still have them open
    database     pages that it does not use

Files of experiments, above all checkpoints, are freed by deleting experiments or checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.host.rundir import runs_root
from det_jupyter.contract.messages import Capsule, DiskUsage, DiskUse, FreedRoom
from det_jupyter.contract.messages.disks import UseKind
from det_jupyter.contract.trial.captured import blobs_of, code_key, private_blobs_of
from det_jupyter.errors import CheckpointError, DetError
from det_jupyter.master.background.cleanup import remove_leftovers, sweep
from det_jupyter.master.service.committing.reserve import NAME as RESERVE
from det_jupyter.master.service.service import Service
from det_jupyter.storage import read_metadata
from det_jupyter.storage.directory import remove_tree

_GRACE_S = 3600.0  # blobs are stored before an experiment refers to them
_LOG_AGE_S = 86_400.0
_SCRATCH = ".part-"
_DATABASE = "det.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The files that the master's state refers to.

    Args:
        names: The names of all experiments, by number.
        checkpoints: The experiment of each checkpoint, by uuid.
        last_id: The last number that was given to an experiment.
        capsules: The capsules of all experiments.
        blobs: Names of blobs that experiments refer to.
        codes: Names of folders of unpacked modules that experiments refer to.
        locations: Folders of checkpoints outside of the data folder.
    """

    names: Mapping[int, str]
    checkpoints: Mapping[str, int]
    last_id: int
    capsules: Sequence[Capsule]
    blobs: frozenset[str]
    codes: frozenset[str]
    locations: frozenset[str]


@dataclass(slots=True)
class _Sum:
    num_bytes: int = 0
    num_files: int = 0
    safe: list[Path] = field(default_factory=list)
    safe_bytes: int = 0


_Key = tuple[UseKind, str, int | None]  # kind, folder, experiment


def known_of(service: Service) -> Known:
    """Return the files that the machine's state refers to."""
    state = service.machine.state
    experiments = list(state.experiments.values())
    capsules = [each.capsule for each in experiments]
    locations = {each.location for each in experiments}
    locations |= {one.location for one in state.checkpoints.values() if one.is_placed}
    return Known(
        names={each.id: each.name for each in experiments},
        checkpoints={one.uuid: one.experiment_id for one in state.checkpoints.values()},
        last_id=state.last_experiment_id,
        capsules=capsules,
        blobs=frozenset(b for each in capsules for b in blobs_of(each) | private_blobs_of(each)),
        codes=frozenset(map(code_key, capsules)),
        locations=frozenset(at for at in locations if at is not None and at.startswith("/")),
    )


def measure(known: Known, data_dir: Path, now: float) -> list[DiskUse]:
    """Return the uses of disk space, the largest first. Reads the sizes of all files."""
    uses = [
        DiskUse(
            kind=kind,
            folder=folder,
            num_bytes=found.num_bytes,
            num_files=found.num_files,
            experiment_id=number,
            name=known.names.get(number, "") if number is not None else "",
            safe_bytes=found.safe_bytes,
        )
        for (kind, folder, number), found in _sums(known, data_dir, now).items()
        if found.num_files
    ]
    return sorted(uses, key=lambda use: (-use.num_bytes, use.kind, use.experiment_id or 0))


def free(known: Known, data_dir: Path, now: float) -> FreedRoom:
    """Delete the files that nothing refers to. Files that do not exist any more are skipped."""
    freed = FreedRoom(num_bytes=0, num_files=0)
    safe = [path for found in _sums(known, data_dir, now).values() for path in found.safe]
    sizes = {path: _size_of(path) for path in safe}
    # Blobs and code, if they are old: a client may be about to refer to new ones.
    sweep(data_dir, known.capsules, now)
    remove_leftovers(known.locations, data_dir)  # incomplete checkpoints that no writer has locked
    for path, (num_bytes, num_files) in sizes.items():
        if not (path.name.startswith(_SCRATCH) or path.is_relative_to(data_dir / "blobs")
                or path.is_relative_to(data_dir / "code")):  # fmt: skip
            try:
                _remove(path)
            except FileNotFoundError:
                continue
            except (OSError, DetError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                freed.problems.append(f"{path} cannot be removed: {why}")
        if not os.path.lexists(path) or (
            path.parent == data_dir / "logs" and not _takes_room(path)
        ):
            freed.num_bytes += num_bytes
            freed.num_files += num_files
    return freed


def _remove(path: Path) -> None:
    if path.parent.name == "logs" and _is_of_process(path):
        descriptor = open_own(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
    elif path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink()


def _sums(known: Known, data_dir: Path, now: float) -> dict[_Key, _Sum]:
    sums: dict[_Key, _Sum] = {}
    for key, path, is_safe in _parts(known, data_dir, now):
        num_bytes, num_files = _size_of(path)
        found = sums.setdefault(key, _Sum())
        found.num_bytes += num_bytes
        found.num_files += num_files
        if is_safe:
            found.safe.append(path)
            found.safe_bytes += num_bytes
    return sums


def _parts(known: Known, data_dir: Path, now: float) -> Iterator[tuple[_Key, Path, bool]]:
    """Yield a key, the path, and whether it can be freed, for each part of the data."""
    for location in sorted({str(data_dir / "checkpoints"), *known.locations}):
        is_own = location == str(data_dir / "checkpoints")
        yield from _checkpoints(known, Path(location), now, is_own=is_own)
    for path in _entries(data_dir):
        name, folder = path.name, str(path)
        if name == "checkpoints":
            continue
        if name.startswith(_DATABASE):
            yield ("database", str(data_dir), None), path, False
        elif name == RESERVE:
            yield ("reserve", str(data_dir), None), path, False
        elif name == "logs":
            for log in _entries(path):
                yield ("logs", folder, None), log, _is_old_log(log, now)
        elif name == "copies":
            for copy in _entries(path):
                yield ("copies", folder, None), copy, False
        elif name == "blobs":
            for blob in path.glob("??/*"):
                is_safe = blob.name not in known.blobs and _is_older(blob, now - _GRACE_S)
                yield ("blobs", folder, None), blob, is_safe
        elif name == "code":
            for code in _entries(path):
                is_safe = code.name not in known.codes and _is_older(code, now - _GRACE_S)
                yield ("code", folder, None), code, is_safe
        elif name in ("tensorboard", "traces") or path == runs_root(data_dir):
            yield from _of_experiments(known, path)
        else:
            yield ("other", str(data_dir), None), path, False


def _checkpoints(
    known: Known, folder: Path, now: float, *, is_own: bool
) -> Iterator[tuple[_Key, Path, bool]]:
    """Yield checkpoints, and leftovers of checkpoints.

    A run that was given up may have committed a checkpoint to a shared folder before it was ended;
    it is not recorded then. But another master, with an experiment of the same number, may also
    have written it, so it is listed and never freed.
    """
    for path in _entries(folder):
        number = known.checkpoints.get(path.name)
        if number is not None and number in known.names:
            yield ("checkpoints", str(folder), number), path, False
        elif path.name.startswith(_SCRATCH):
            yield ("leftovers", str(folder), None), path, True
        elif (owner := _owner_of(path, now)) in known.names:
            yield ("unrecorded", str(folder), owner), path, False
        elif is_own:
            yield ("other", str(folder), None), path, False


def _owner_of(path: Path, now: float) -> int | None:
    """Return the experiment that a checkpoint's metadata names; None if there is none.

    None also for a checkpoint that was just written: its record arrives a moment later.
    """
    if not _is_older(path, now - _GRACE_S):
        return None
    try:
        metadata = read_metadata(path)
    except (OSError, CheckpointError):
        return None
    owner = metadata.get("experiment_id") if metadata.get("uuid") == path.name else None
    return owner if isinstance(owner, int) else None


def _of_experiments(known: Known, folder: Path) -> Iterator[tuple[_Key, Path, bool]]:
    """Yield folders named after experiments; those of deleted experiments are leftovers."""
    kinds: dict[str, UseKind] = {"traces": "traces", "tensorboard": "tensorboard"}
    for path in _entries(folder):
        digits = path.name.split(".")[0]
        number = int(digits) if digits.isdecimal() and len(digits) < 20 else None
        if number is not None and number not in known.names and number <= known.last_id:
            yield ("leftovers", str(folder), None), path, True
        else:
            yield (kinds.get(folder.name, "runs"), str(folder), number), path, False


def _is_old_log(path: Path, now: float) -> bool:
    return _is_rotated(path) or (
        _is_of_process(path) and _takes_room(path) and _is_older(path, now - _LOG_AGE_S)
    )


def _takes_room(path: Path) -> bool:
    return _size_of(path)[0] > 0


def _is_rotated(path: Path) -> bool:
    return path.suffix[1:].isdecimal()


def _is_of_process(path: Path) -> bool:
    """Return whether a log may be open in a fork server or bridge, which may be idle for days."""
    return path.name.startswith(("zygote-", "bridge-")) and not _is_rotated(path)


def _is_older(path: Path, before: float) -> bool:
    with suppress(OSError):
        return path.stat().st_mtime < before
    return False


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # the folder does not exist, or its drive is not mounted
        return []


def _size_of(path: Path) -> tuple[int, int]:
    """Return the disk space of a file or folder, and its number of files.

    Holes do not count, and a file with several links counts in parts.
    """
    num_bytes = num_files = 0
    for file in _files_in(path):
        with suppress(OSError):
            info = file.lstat()
            num_bytes += 512 * info.st_blocks // max(1, info.st_nlink)
            num_files += 1
    return num_bytes, num_files


def _files_in(path: Path) -> Iterable[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for parent, _, names in os.walk(path):
        for name in names:
            yield Path(parent, name)


def usage_of(service: Service, known: Known) -> DiskUsage:
    """Return what uses space on the master's disks. Blocks: call it in a thread."""
    now = time.time()
    return DiskUsage(
        disks=service.disks.statuses(now), uses=measure(known, paths.data_dir(), now), at=now
    )
