"""Messages about disks: how full they are, what uses them, and which trials wait for room."""

from __future__ import annotations

from typing import Literal

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, PrintableText, Timestamp
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import count, rough_duration, size

MASTERS = "the master's computer"  # where checkpoints of agents elsewhere are uploaded to


class RoomWait(Wire):
    """A trial waits for room on a disk, or for a bucket.

    Its ranks wait at a batch, or it holds no slots: then it is queued again when there is room.
    While a checkpoint waits for its upload, training goes on, unless it `holds` or has ended.
    """

    # What could not be written.
    writing: Literal["records", "checkpoint", "uploads"] = "records"
    folder: PrintableText = ""  # on the full disk, "": unknown; or the location of the bucket
    reason: PrintableText = ""  # why an upload waits; "": others come before it
    holds: bool = False  # ranks wait for uploads
    is_over: bool = False  # ranks have ended: only the slots wait for uploads
    agent_id: str = ""  # the agent, if the disk is on another computer than the master
    needs_bytes: Count = 0  # bytes that it has to write, about; 0: few
    since: Timestamp
    try_at: Timestamp = 0.0  # the earliest time at which a trial without slots is queued

    @property
    def sentence(self) -> str:
        """What the trial waits for, as a predicate.

        >>> RoomWait(folder="/data", needs_bytes=3 * 10**8, since=0.0).sentence
        'waits for room on /data (needs about 300 MB) and goes on when there is some'
        >>> print(RoomWait(writing="uploads", folder="s3://b", reason="s3://b answers 503",
        ...     since=0.0).sentence)
        keeps its last checkpoints, as s3://b answers 503; the training goes on
        """
        if self.writing == "uploads":
            reason = self.reason or f"{self.folder} has not taken its last checkpoints yet"
            if self.is_over:
                return (
                    f"keeps its slots until its last checkpoints are stored, as {reason}; killing "
                    "it gives them up"
                )
            if self.holds:
                return f"waits, as {reason}, and goes on by itself"
            return f"keeps its last checkpoints, as {reason}; the training goes on"
        needs = f" (needs about {size(self.needs_bytes)})" if self.needs_bytes else ""
        where = (
            f"{self.folder or 'a full disk'}{f' of agent {self.agent_id}' * bool(self.agent_id)}"
        )
        return f"waits for room on {where}{needs} and goes on when there is some"


class DiskReading(Wire):
    """The room on the disk of a folder, as read on its computer."""

    folder: PrintableText
    total_bytes: Count
    free_bytes: Count
    free_files: Count | None = None  # None: the file system has no limit
    is_full: bool = False  # writers wait


DiskState = Literal["ok", "low", "full"]


class DiskStatus(DiskReading):
    """A disk that we write to, and when it will be full.

    `writes` has what the checkpoints of each unfinished experiment have added in the last
    `over_s` seconds, in bytes.
    """

    agent_id: str = ""  # the agent, if the disk is on another computer than the master
    state: DiskState = "ok"
    lost_bytes: Count = 0  # by how much the free space shrank in the last `over_s` seconds
    over_s: float = 0.0
    full_in_s: float | None = None  # at that rate; None: not foreseeable
    writes: dict[int, Count] = {}

    def sentence(self, reader: Reader) -> str:
        """Return the state of the disk in a sentence, for a warning.

        >>> from det_jupyter.contract.values.reader import SHELL
        >>> status = DiskStatus(
        ...     folder="/data", total_bytes=10**12, free_bytes=12 * 10**8, state="low",
        ...     lost_bytes=3 * 10**8, over_s=600.0, full_in_s=2400.0, writes={7: 10**8})
        >>> print(status.sentence(SHELL))
        /data: 1.2 GB free; 300 MB were written in 10 min (experiment 7: 100 MB), so it is full \
in about 40 min; `det disk` shows what takes it
        """
        where = f"agent {self.agent_id}: " if self.agent_id else ""
        free = f"{where}{self.folder}: {size(self.free_bytes)} free"
        if self.free_files is not None and self.free_files < 1000:
            free += f" and {count(self.free_files, 'more file')} possible"
        if self.state == "full":
            what = "; what trains here waits for room and goes on when there is some"
        elif self.full_in_s is not None:
            listed = (
                f"experiment {number}: {size(written)}"
                for number, written in sorted(self.writes.items(), key=lambda one: -one[1])[:3]
            )
            by = ", ".join(listed)
            what = (
                f"; {size(self.lost_bytes)} were written in {rough_duration(self.over_s)}"
                f"{f' ({by})' if by else ''}, so it is full in about "
                f"{rough_duration(self.full_in_s)}"
            )
        else:
            what = ", which is little"
        return f"{free}{what}; `{reader.det} disk` shows what takes it"


class RoomForecast(Wire):
    """The forecast whether an experiment's checkpoints will fit, by those of an earlier one."""

    folder: str = ""  # the storage; "": unknown, or no folder
    free_bytes: Count | None = None  # None: unknown
    checkpoint_bytes: Count = 0  # the size of a checkpoint; 0: unknown
    num_checkpoints: Count = 0  # how many are on the disk before the experiment ends
    like: int | None = None  # the experiment that this is known from

    @property
    def fits(self) -> bool:
        """Whether they fit, or nothing is known."""
        needs_bytes = self.checkpoint_bytes * self.num_checkpoints
        return self.free_bytes is None or needs_bytes <= self.free_bytes

    @property
    def sentence(self) -> str:
        """What does not fit, for a warning.

        >>> RoomForecast(folder="/data", free_bytes=12 * 10**8, checkpoint_bytes=3 * 10**8,
        ...     num_checkpoints=12, like=3).sentence
        'checkpoint_storage: 12 checkpoints of 300 MB (as experiment 3 wrote) take 3.6 GB until \
the experiment ends, and /data has 1.2 GB free.'
        """
        needs_bytes = self.checkpoint_bytes * self.num_checkpoints
        return (
            f"checkpoint_storage: {count(self.num_checkpoints, 'checkpoint')} of "
            f"{size(self.checkpoint_bytes)} (as experiment {self.like} wrote) take "
            f"{size(needs_bytes)} until the experiment ends, and {self.folder} has "
            f"{size(self.free_bytes or 0)} free."
        )


UseKind = Literal[
    "checkpoints",  # of an experiment
    "database",
    "runs",  # journals and output of runs that the master has not stored
    "traces",
    "tensorboard",
    "code",  # unpacked modules
    "blobs",  # captured data
    "logs",
    "copies",  # of checkpoints in buckets
    "unrecorded",  # checkpoints of runs that were given up, or of another master
    "leftovers",  # of deleted experiments and killed ranks
    "reserve",
    "other",
]


class DiskUse(Wire):
    """The disk space that one kind of our files uses, and how much can be freed without loss."""

    kind: UseKind
    folder: str
    num_bytes: Count
    num_files: Count
    experiment_id: int | None = None
    name: str = ""  # of the experiment
    safe_bytes: Count = 0  # what `--free` frees


class DiskUsage(Wire):
    """The disks that are written to, and what uses the space on the master's, largest first."""

    disks: list[DiskStatus]
    uses: list[DiskUse]
    at: float


class FreedRoom(Wire):
    """The room that was freed."""

    num_bytes: Count
    num_files: Count
    problems: list[str] = []


class Garbage(Wire):
    """A checkpoint that is not kept, or files that a process has left, in any storage.

    Args:
        kind: policy: the policy of its experiment does not keep it. draft: a killed process has
            left it unfinished. upload: a killed upload has left it, in a bucket. unrecorded: it
            is whole, but its run was killed before it has reported it. moved: where a checkpoint
            was before it was moved; if its files there cannot be deleted, they are forgotten.
        path: A folder, or a location in a bucket.
        changed_at: When it was last written.
    """

    kind: Literal["policy", "draft", "upload", "unrecorded", "moved"]
    path: str
    experiment_id: int | None = None
    num_bytes: Count
    changed_at: float


class CollectGarbage(Wire):
    """Find the checkpoints that are not kept, and what crashes have left in storages.

    Args:
        paths: Where it is deleted, of what an earlier answer has listed; none: nowhere.
    """

    paths: list[str] = []


class CollectedGarbage(Wire):
    """What was found; if paths were given, what was deleted there."""

    found: list[Garbage]
    problems: list[str] = []  # storages that could not be looked through, or not cleared
