"""Decides whether the ranks of a gang here make no progress, and what each of them does. Pure.

    progress    a rank's batch, or a count of its collectives, has grown
    moving      its main thread uses a core or waits for one, is woken again and again (data
                arrives), or is in a read of a disk; another thread or a process of it uses a
                core. Such a rank is slow, and its gang does not hang
    waits       its main thread is in a collective, or its device is (NCCL): whatever cores it uses
    idle        neither of these

    every rank waits or is idle for LOOK_AFTER_S    -> look: stacks and flight recorders are read
    and two looks found each of them at the         -> the ranks are stalled
      same place, and it lasts for the limit
    progress, or an idle rank moves again           -> they are not

The limit is `after_s`, if a rank waits in a collective. It is longer if none does, since a rank
that sleeps by itself holds up no other; if the devices of all have entered the same one, since
they may still compute what was begun before it; before the first sign of progress, when things
are being fetched; and where the ranks stood still before and then went on (twice as long).

Times are monotonic, so those in which the computer was suspended do not count; nor does an
interval in which this process was held up itself. Ranks in a debugger are not judged, nor gangs
all of whose processes are stopped: a user did that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

INTERVAL_S = 1.0  # between two samples
LOOK_AFTER_S = 3.0
_LOOKS_APART_S = (2.0, 30.0)  # between looks: at first, and after many
_ALONE_S = 60.0  # the limit if no rank waits for others
_FIRST = 3.0  # times the limit before the first progress
_GAP_S = 5.0  # a longer interval between samples says nothing about the ranks
_DISK_S = 60.0  # a wait for a disk that takes longer is no movement
_BEAT_S = 4.0  # without a beat for so long, the interpreter's lock is held

# What counts as movement, per second.
_CPU_S = 0.005
_OTHER_CPU_S = 0.02
_WAKES = 3.0
_STEADY_WAKES = 4  # of the last _RECENT intervals: data that arrive slowly
_RECENT = 6

Kind = Literal["waits", "still", "stopped", "held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a closer look at a rank has found.

    Args:
        position: Where its main thread is; equal for two looks at the same place.
        waits: Whether it is in a collective, by its stack or the flight recorder.
        entered: The collective that its device is in, by the flight recorder; None: unknown.
        is_debugged: Whether a debugger holds it.
    """

    position: Hashable
    waits: bool
    entered: Hashable = None
    is_debugged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersSample:
    """The other threads of a rank, without those of runtimes, and its descendants.

    `cpu_s` is the time that the threads have used a core or waited for one, `child_cpu_s` that of
    the descendants; `wakes` is how often the threads were woken.
    """

    cpu_s: float = 0.0
    wakes: int = 0
    child_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """A rank at one time; counts grow from the start of its process.

    Args:
        progress: What grows with its progress.
        state: Of its main thread, as in /proc: R, S, D, T, t.
        cpu_s: CPU time of its main thread.
        core_wait_s: Time for which this thread waited for a core.
        wakes: How often this thread was woken.
        others: Its other threads and its descendants; None: they were not read.
        beats: Of the evidence page; None: unknown.
        spins: Whether waiting for other ranks may use a core (NCCL).
        look: The look that was asked for after the sample before.
    """

    rank: int
    progress: tuple[int, ...]
    state: str = "S"
    cpu_s: float = 0.0
    core_wait_s: float = 0.0
    wakes: int = 0
    others: OthersSample | None = None
    beats: int | None = None
    spins: bool = False
    look: Look | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a sample has shown.

    Args:
        wants_look: Whether the next sample has to come with looks.
        stalled: The kind of each rank, if they are stalled; None: they are not.
        quiet_s: For how long there has been no progress.
    """

    wants_look: bool = False
    stalled: Mapping[int, Kind] | None = None
    quiet_s: float = 0.0


class _RankWatch:
    """What is remembered of one rank."""

    def __init__(self, sample: RankSample, now: float) -> None:
        self.last = sample
        self.idle_since = now
        self.disk_since: float | None = None
        self.beat_at = now
        self.recent: list[bool] = []  # whether it was woken in each of the last intervals
        self.looks: list[tuple[float, Look]] = []  # the last two

    def step(self, sample: RankSample, now: float, gap_s: float) -> bool:
        """Take a sample; return whether the rank has moved since the one before."""
        before, self.last = self.last, sample
        if sample.beats != before.beats:
            self.beat_at = now
        if sample.look is not None:
            self.looks = [*self.looks[-1:], (now, sample.look)]
        has_moved = self._has_moved(before, sample, now, gap_s)
        if has_moved:
            self.idle_since = now
        return has_moved

    def _has_moved(self, before: RankSample, after: RankSample, now: float, gap_s: float) -> bool:
        self.disk_since = (self.disk_since or now) if after.state == "D" else None
        if self.disk_since is not None and now - self.disk_since < _DISK_S:
            return True
        # Reading its stack wakes it, too.
        wakes = max(0, after.wakes - before.wakes - 3 * (after.look is not None))
        self.recent = [*self.recent[1 - _RECENT :], wakes > 0]
        return (
            self._others_move(before.others, after.others, now, gap_s)
            or after.cpu_s - before.cpu_s >= _CPU_S * gap_s * (1 + 3 * (after.look is not None))
            or after.core_wait_s - before.core_wait_s >= _CPU_S * gap_s
            or wakes >= _WAKES * gap_s
            or sum(self.recent) >= _STEADY_WAKES
        )

    def _others_move(
        self, before: OthersSample | None, after: OthersSample | None, now: float, gap_s: float
    ) -> bool:
        if before is None or after is None:
            return False
        wakes = after.wakes - before.wakes
        return (
            after.cpu_s - before.cpu_s >= _OTHER_CPU_S * gap_s
            or (wakes >= _WAKES * gap_s and not self.is_held(now))  # else they try to get the lock
            or after.child_cpu_s - before.child_cpu_s >= _CPU_S * gap_s
        )

    def is_held(self, now: float) -> bool:
        """Whether the interpreter cannot run, though the process is not stopped."""
        return bool(self.last.beats) and now - self.beat_at > _BEAT_S

    @property
    def is_stopped(self) -> bool:
        return self.last.state in ("T", "t")

    @property
    def look(self) -> Look | None:
        """The last look."""
        return self.looks[-1][1] if self.looks else None

    @property
    def waits(self) -> bool:
        return self.look is not None and self.look.waits and not self.is_stopped

    def forget_looks(self) -> None:
        self.looks = []

    def is_idle_for(self, seconds: float, now: float) -> bool:
        """Return whether it has been idle, or waiting on its device, for so long."""
        if now - self.idle_since >= seconds or self.is_stopped:
            return True
        return self.last.spins and self.waits

    def stays(self) -> bool:
        """Whether two looks have found it at the same place, or none is possible."""
        if self.is_stopped:
            return True
        return len(self.looks) == 2 and self.looks[0][1].position == self.looks[1][1].position

    def kind(self, now: float) -> Kind:
        if self.is_stopped:
            return "stopped"
        if self.waits:
            return "waits"
        return "held" if self.is_held(now) else "still"


class StallWatch:
    """Watches the ranks of a gang that are on this computer.

    Args:
        after_s: The limit if a rank waits for others.
        others_wait: Whether the gang has ranks elsewhere, which may wait for these.
    """

    def __init__(self, after_s: float, *, others_wait: bool = False) -> None:
        self._after_s = after_s
        self._others_wait = others_wait
        self._ranks: dict[int, _RankWatch] = {}
        self._progress: tuple[tuple[int, ...], ...] = ()
        self._has_begun = False
        self._since = self._now = 0.0
        self._looked_at = float("-inf")
        self._pause_s = _LOOKS_APART_S[0]
        self._stalled: dict[int, Kind] | None = None
        self._moved = 0  # samples in a row in which a stalled rank has moved
        self._survived: dict[Hashable, float] = {}  # how long the ranks stood there, and went on

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
            self._has_begun = True
            self._begin(progress, now)
            return Finding()
        if self._stalled is not None:
            self._follow(samples, moved, now)
        return self._judge(now)

    def _begin(self, progress: tuple[tuple[int, ...], ...], now: float) -> None:
        if self._stalled is not None and progress != self._progress:
            place = self._place()
            self._survived[place] = max(self._survived.get(place, 0.0), now - self._since)
            self._stalled = None
        self._progress, self._since = progress, now
        self._looked_at, self._pause_s, self._moved = float("-inf"), _LOOKS_APART_S[0], 0
        for watch in self._ranks.values():
            watch.idle_since = watch.beat_at = now
            watch.recent = []
            watch.forget_looks()

    def _follow(self, samples: Sequence[RankSample], moved: Sequence[bool], now: float) -> None:
        """Take the stall back if a rank that others wait for moves in two samples in a row."""
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
        if not all(w.last.spins or w.is_idle_for(LOOK_AFTER_S, now) for w in watches):
            return Finding(quiet_s=quiet_s)
        limit_s = self._limit()
        is_still = all(watch.stays() and watch.is_idle_for(limit_s, now) for watch in watches)
        if quiet_s >= limit_s and is_still:
            self._stalled = {rank: watch.kind(now) for rank, watch in self._ranks.items()}
            return Finding(stalled=self._stalled, quiet_s=self._still_s(now))
        return Finding(wants_look=self._may_look(now), quiet_s=quiet_s)

    def _still_s(self, now: float) -> float:
        """Return for how long the ranks that others wait for have been idle."""
        spans = [now - w.idle_since for w in self._ranks.values() if not w.waits]
        return min([now - self._since, *spans])

    def _may_look(self, now: float) -> bool:
        """Return whether it is time for a look, and note it."""
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
        if not self._has_begun and not any(map(any, self._progress)):
            limit_s *= _FIRST
        return max(limit_s, 2 * self._survived.get(self._place(), 0.0))

    def _devices_agree(self) -> bool:
        """Return whether all devices have the same collective to do, or something before it."""
        entered = [watch.look.entered for watch in self._ranks.values() if watch.look is not None]
        return bool(entered) and entered[0] is not None and len(set(entered)) == 1

    def _place(self) -> Hashable:
        """Return where the ranks are that the others wait for."""
        return tuple(
            (rank, watch.look.position)
            for rank, watch in sorted(self._ranks.items())
            if watch.look is not None and not watch.waits
        )
