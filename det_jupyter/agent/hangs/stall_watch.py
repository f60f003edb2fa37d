"""Decides whether the ranks of a gang here make no progress, and what each of them does. Pure.

What a rank does:

    progress    its batch number, or one of its counts of collectives, has grown
    moving      its main thread computes (or waits for a core), waits for a disk, or reads data;
                or its other threads and processes compute, or their files and connections grow,
                and the main thread may wait for these. Such a gang is slow, but does not hang
    waits       its main thread is in a collective, or its device is (NCCL), whatever else the
                process does
    idle        none of these. A main thread that only polls is idle, too

What follows:

    no progress, and no main thread moves     -> a look: stacks and flight recorders are read
    each rank waits or is idle for the        -> the ranks are stalled
      limit, and two looks have found it
      at the same place
    progress, or an idle rank moves again     -> the ranks are not stalled any more

The limit is `after_s` if a rank waits in a collective. It is longer in these cases:

    no rank waits in a collective             a rank that sleeps holds up no other one
    all devices have entered the same one     they may still compute what was begun before it
    the first batch is not over               data and models may be downloading
    the ranks stood at this place before,     twice the time that they stood there
      and then went on

Times are monotonic, so they do not include those in which the computer was suspended. An
interval in which this process itself was held up does not count. Ranks in a debugger are not
judged, nor gangs whose processes are all stopped, because a user has done that.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

INTERVAL_S = 1.0  # between two samples
LOOK_AFTER_S = 3.0
_LOOKS_APART_S = (2.0, 30.0)  # time between looks: at first; and after many, or while a rank moves
_ALONE_S = 60.0  # the limit if no rank waits for others
_FIRST = 3.0  # factor of the limit until the first batch is over
_GAP_S = 5.0  # after a longer interval between samples, the watch begins anew
_DISK_S = 60.0  # a wait for a disk that takes longer is no movement
_BEAT_S = 4.0  # after this time without a beat, the interpreter's lock is held
# Number of looks that are compared, since a loop that polls may have several lines; two at the
# same place are enough.
_LOOKS = 4
_STARTING = 100  # collectives with which a run without batches is past its start

# What counts as movement, in seconds or bytes per second. Polling every ms takes 4 % of a core
# [m], and background processes such as those of trackers a few percent.
_MAIN_CPU = 0.05
_OTHER_CPU = 0.1
_STARVED = 0.5  # share of the time: computing and waiting for a core together
_BYTES = 1000.0
_POLLS = 20.0  # wakes per second

Kind = Literal["waits", "still", "stopped", "held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The result of a closer look at a rank.

    Args:
        position: Where its main thread is; equal for two looks at the same place.
        waits: Whether it is in a collective, by its stack or the flight recorder.
        entered: The collective that its device is in, by the flight recorder; None: unknown.
        is_debugged: Whether a debugger holds it.
        is_answered: Whether its stack is known; it is not while the rank cannot answer.
    """

    position: Hashable
    waits: bool
    entered: Hashable = None
    is_debugged: bool = False
    is_answered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersSample:
    """The other threads of a rank, without those of runtimes, and its descendants.

    Args:
        cpu_s: CPU time of both, also of descendants that have ended.
        core_wait_s: Time for which they waited for a core.
        num_bytes: By how many bytes their files and connections have grown.
        num_printed: By how many bytes the rank's output has grown.
        at_disk: Whether a descendant waits for a disk.
    """

    cpu_s: float = 0.0
    core_wait_s: float = 0.0
    num_bytes: int = 0
    num_printed: int = 0
    at_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """A rank at one time; counts grow from the start of its process.

    Args:
        batch: How many batches it has begun; 0: unknown.
        collectives: Counts of the collectives that it has begun.
        state: State of its main thread, as in /proc: R, S, D, T, t.
        cpu_s: CPU time of its main thread.
        core_wait_s: Time for which this thread waited for a core.
        wakes: How often this thread was woken.
        reads: What this thread reads from, without a time limit: then data wake it; None: nothing.
        others: Its other threads and its descendants; None: they were not read.
        beats: The word `beats` of the evidence page; None: unknown.
        spins: Whether waiting for other ranks may use a core (NCCL).
        look: The look that the `Finding` of the previous sample requested.
    """

    rank: int
    batch: int = 0
    collectives: tuple[int, ...] = ()
    state: str = "S"
    cpu_s: float = 0.0
    core_wait_s: float = 0.0
    wakes: int = 0
    reads: Hashable = None
    others: OthersSample | None = None
    beats: int | None = None
    spins: bool = False
    look: Look | None = None

    @property
    def progress(self) -> tuple[int, ...]:
        """The numbers that grow with its progress."""
        return self.batch, *self.collectives


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a sample.

    Args:
        wants_look: Whether the next sample has to come with looks.
        stalled: The kind of each rank, if they are stalled; None: they are not.
        quiet_s: For how long there has been no progress.
    """

    wants_look: bool = False
    stalled: Mapping[int, Kind] | None = None
    quiet_s: float = 0.0


class _RankWatch:
    """The last sample and looks of one rank, and since when it has not moved."""

    def __init__(self, sample: RankSample, now: float) -> None:
        self.last = sample
        self.begin(now)

    def begin(self, now: float) -> None:
        """Discard the earlier samples and looks."""
        self._main_idle_since = self._idle_since = self._beat_at = now
        self._not_at_disk_at = now
        self.looks: list[Look] = []  # the last _LOOKS

    def step(self, sample: RankSample, now: float, gap_s: float) -> bool:
        """Take a sample; return whether the rank has moved since the previous one."""
        before, self.last = self.last, sample
        if sample.beats != before.beats:
            self._beat_at = now
        if sample.look is not None and (sample.look.is_answered or self.is_held(now)):
            self.looks = [*self.looks[1 - _LOOKS :], sample.look]
        others = sample.others or OthersSample()
        is_at_disk = sample.state == "D" or others.at_disk
        if not is_at_disk:
            self._not_at_disk_at = now
        moves_disk = is_at_disk and now - self._not_at_disk_at < _DISK_S
        main_moves = _main_moves(before, sample, gap_s)
        if main_moves or (moves_disk and sample.state == "D"):
            self._main_idle_since = self._idle_since = now
        elif moves_disk or _others_move(before.others, sample.others, gap_s):
            self._idle_since = now
        return self._idle_since == now

    def idle_s(self, now: float) -> float:
        """Return for how long it has been idle, or has waited for other ranks."""
        if self.is_stopped or (self.last.spins and self.waits):
            return math.inf
        return now - (self._main_idle_since if self.waits else self._idle_since)

    def main_idle_s(self, now: float) -> float:
        """Return for how long its main thread has not moved."""
        return math.inf if self.is_stopped else now - self._main_idle_since

    def is_held(self, now: float) -> bool:
        """Return whether the interpreter cannot run, though the process is not stopped."""
        return bool(self.last.beats) and now - self._beat_at > _BEAT_S

    @property
    def is_stopped(self) -> bool:
        return self.last.state in ("T", "t")

    @property
    def look(self) -> Look | None:
        """The last look."""
        return self.looks[-1] if self.looks else None

    @property
    def waits(self) -> bool:
        return self.look is not None and self.look.waits and not self.is_stopped

    def stays(self) -> bool:
        """Return whether two looks have found the rank at the same place, or none is possible."""
        positions = [look.position for look in self.looks]
        return self.is_stopped or positions[-1:] in ([each] for each in positions[:-1])

    def kind(self, now: float) -> Kind:
        if self.is_stopped:
            return "stopped"
        if self.waits:
            return "waits"
        return "held" if self.is_held(now) else "still"


def _main_moves(before: RankSample, after: RankSample, gap_s: float) -> bool:
    wakes = after.wakes - before.wakes
    if wakes > 0 and after.reads is not None and after.reads == before.reads:
        return True
    core_wait_s = after.core_wait_s - before.core_wait_s
    if wakes > _POLLS * gap_s:  # it waits for a core at each of them
        core_wait_s = 0.0
    return _computes(after.cpu_s - before.cpu_s, core_wait_s, _MAIN_CPU, gap_s)


def _others_move(before: OthersSample | None, after: OthersSample | None, gap_s: float) -> bool:
    if before is None or after is None:
        return False
    return (
        after.num_printed > before.num_printed
        or after.num_bytes - before.num_bytes >= _BYTES * gap_s
        or _computes(
            after.cpu_s - before.cpu_s, after.core_wait_s - before.core_wait_s, _OTHER_CPU, gap_s
        )
    )


def _computes(cpu_s: float, core_wait_s: float, share: float, gap_s: float) -> bool:
    return cpu_s >= share * gap_s or cpu_s + core_wait_s >= _STARVED * gap_s


class StallWatch:
    """Watches the ranks of a gang that are on this computer.

    Args:
        after_s: The limit if a rank waits for others.
        first_batch: The number of the run's first batch.
        others_wait: Whether the gang has ranks elsewhere, which may wait for these.
    """

    def __init__(self, after_s: float, *, first_batch: int = 1, others_wait: bool = False) -> None:
        self._after_s = after_s
        self._others_wait = others_wait
        self._ranks: dict[int, _RankWatch] = {}
        self._first_batch = first_batch
        self._is_past_start = False
        self._now = 0.0
        self._stalled: dict[int, Kind] | None = None
        # By place: how long the ranks stood still before they went on.
        self._survived: dict[Hashable, float] = {}
        # `_begin` sets what starts anew with each progress, first with the first sample.

    def step(self, samples: Sequence[RankSample], now: float) -> Finding:
        """Take a sample of all ranks; `now` is monotonic seconds."""
        gap_s, self._now = now - self._now, now
        progress = tuple(sample.progress for sample in samples)
        known = self._ranks.keys() == {sample.rank for sample in samples}
        if not known or gap_s > _GAP_S:
            self._ranks = {sample.rank: _RankWatch(sample, now) for sample in samples}
            self._begin(progress, now)
            return Finding(stalled=self._stalled)
        moved = [self._ranks[sample.rank].step(sample, now, max(gap_s, 0.1)) for sample in samples]
        if progress != self._progress:
            self._is_past_start |= self._has_started(samples)
            self._begin(progress, now)
            return Finding()
        if self._stalled is not None:
            self._follow(samples, moved, now)
        return self._judge(now)

    def _has_started(self, samples: Sequence[RankSample]) -> bool:
        """Return whether the first batch is over; where no batch is known, by the collectives."""
        batch = max(sample.batch for sample in samples)
        num_collectives = max(sum(sample.collectives) for sample in samples)
        return batch > self._first_batch or (not batch and num_collectives >= _STARTING)

    def _begin(self, progress: tuple[tuple[int, ...], ...], now: float) -> None:
        if self._stalled is not None and progress != self._progress:
            self._survived[self._place()] = now - self._since  # longer than the time before
            self._stalled = None
        self._progress: tuple[tuple[int, ...], ...] = progress
        self._since: float = now
        self._looked_at, self._pause_s = float("-inf"), _LOOKS_APART_S[0]
        self._moved = 0  # samples in a row in which a stalled rank has moved
        for watch in self._ranks.values():
            watch.begin(now)

    def _follow(self, samples: Sequence[RankSample], moved: Sequence[bool], now: float) -> None:
        """Withdraw the stall if a rank that others wait for moves in two samples in a row."""
        assert self._stalled is not None
        moves = any(
            has_moved and self._stalled.get(sample.rank) != "waits"
            for sample, has_moved in zip(samples, moved, strict=True)
        )
        continued = any(
            kind == "stopped" and not self._ranks[rank].is_stopped
            for rank, kind in self._stalled.items()
        )
        self._moved = self._moved + 1 if moves else 0
        if self._moved >= 2 or continued:
            self._begin((), now)

    def _judge(self, now: float) -> Finding:
        quiet_s = now - self._since
        if self._stalled is not None:
            return Finding(stalled=self._stalled, quiet_s=quiet_s)
        watches = self._ranks.values()
        stopped = [watch.is_stopped for watch in watches]
        if quiet_s < LOOK_AFTER_S or (all(stopped) and not self._others_wait):
            return Finding(quiet_s=quiet_s)
        if any(watch.look is not None and watch.look.is_debugged for watch in watches):
            return Finding(wants_look=self._may_look(now), quiet_s=quiet_s)
        if not all(w.last.spins or w.main_idle_s(now) >= LOOK_AFTER_S for w in watches):
            return Finding(quiet_s=quiet_s)
        if not all(watch.idle_s(now) >= LOOK_AFTER_S for watch in watches):
            # The moving rank may itself wait for others, while other threads of it compute.
            wants_look = now - self._looked_at >= _LOOKS_APART_S[1] and self._may_look(now)
            self._pause_s = _LOOKS_APART_S[0]
            return Finding(wants_look=wants_look, quiet_s=quiet_s)
        limit_s = self._limit()
        is_still = all(watch.stays() and watch.idle_s(now) >= limit_s for watch in watches)
        if quiet_s >= limit_s and is_still:
            self._stalled = {rank: watch.kind(now) for rank, watch in self._ranks.items()}
            return Finding(stalled=self._stalled, quiet_s=self._still_s(now))
        return Finding(wants_look=self._may_look(now), quiet_s=quiet_s)

    def _still_s(self, now: float) -> float:
        """Return for how long the ranks that others wait for have been idle."""
        spans = [w.idle_s(now) for w in self._ranks.values() if not w.waits]
        return min([now - self._since, *spans])

    def _may_look(self, now: float) -> bool:
        """Return whether it is time for a look; if so, record its time."""
        if now - self._looked_at < self._pause_s:
            return False
        if self._looked_at > float("-inf"):
            self._pause_s = min(1.5 * self._pause_s, _LOOKS_APART_S[1])
        self._looked_at = now
        return True

    def _limit(self) -> float:
        watches = self._ranks.values()
        limit_s = self._after_s
        is_alone = not any(watch.waits for watch in watches) or self._devices_agree()
        if is_alone and not self._others_wait:
            limit_s = max(limit_s, _ALONE_S)
        if not self._is_past_start:
            limit_s *= _FIRST
        return max(limit_s, 2 * self._survived.get(self._place(), 0.0))

    def _devices_agree(self) -> bool:
        """Return whether all devices have the same collective to do, or something before it."""
        entered = [watch.look.entered for watch in self._ranks.values() if watch.look is not None]
        return bool(entered) and entered[0] is not None and len(set(entered)) == 1

    def _place(self) -> Hashable:
        """Return the positions of the ranks that the others wait for."""
        return tuple(
            (rank, watch.look.position)
            for rank, watch in sorted(self._ranks.items())
            if watch.look is not None and not watch.waits
        )
