"""A gang: the ranks of one allocation, started and ended together.

    state       what holds                              leaves it when
    STARTING    no rank has been reported as started    started -> RUNNING (ENDING if a kill was
                                                        ordered meanwhile), not_started -> OVER
    RUNNING     every rank runs or has exited with 0    a rank fails, kill, lose -> ENDING;
                                                        the last rank exits with 0 -> OVER
    ENDING      every process group was sent SIGKILL    the last rank is gone -> OVER
    OVER        no process is left                      never
    any         an error in the agent itself            broken_off -> OVER, all ranks killed

Rules:
 1. All ranks are started, or none.
 2. The first rank that fails ends the gang and is named in the report. Ranks that fail because
    the gang was killed are not.
 3. A rank that exits with 0 leaves the others running: they may still have work to do. It is
    recorded as `first_ended`: if no rank reports the end of the run, it exited too early. Programs
    and commands may exit at any time: only their exit code counts.
 4. The first cause counts: a kill after a failure is not reported. `killed` means that the master
    ordered it, `lost` that the ranks could not stay, for the reason in `loss`.

Pure, except for calls of the function `kill_group` that the gang is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from det_jupyter.agent.starting.rank_processes import RankExit
from det_jupyter.contract.messages import Cut, GangExited, Loss


class GangState(StrEnum):
    """The state of a gang (see the table above)."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    OVER = "OVER"


class Gang:
    """The processes of one allocation.

    Args:
        ranks: The ranks that are processes of the agent.
        kill_group: Kills a rank's process group, given the rank's pid; must not raise.
        may_end_early: Whether exit code 0 means that a rank is done, even if others still run.
    """

    def __init__(
        self,
        allocation_id: str,
        ranks: Iterable[int],
        *,
        kill_group: Callable[[int], None],
        may_end_early: bool = False,
    ) -> None:
        self.allocation_id = allocation_id
        self.state = GangState.STARTING
        self.first_failed: int | None = None
        self.first_ended: int | None = None
        self.ended_at: float | None = None  # when the first rank failed
        self.killed = False
        self.lost = False
        self.loss = Loss.UNKNOWN
        self.error = ""
        self.error_is_final = True
        self.no_room = False
        self.not_saved = False
        self.cut: Cut | None = None
        self.exit_codes: dict[int, int | None] = dict.fromkeys(ranks)
        self._living: dict[int, int] = {}  # rank -> pid
        self._kill_group = kill_group
        self._may_end_early = may_end_early

    @property
    def is_over(self) -> bool:
        """Whether no process is left."""
        return self.state is GangState.OVER

    @property
    def pids(self) -> dict[int, int]:
        """Pids by rank, of the ranks that have not exited."""
        return dict(self._living)

    def started(self, pids: Mapping[int, int]) -> None:
        """Record that all ranks were started, with these pids by rank."""
        self._living = dict(pids)
        self.state = GangState.RUNNING
        if self.killed or self.lost or self.not_saved:
            self._end()

    def not_started(self, error: str = "", *, is_final: bool = False) -> None:
        """Record that no rank was started.

        Args:
            error: The reason; empty if its end was ordered before.
            is_final: Whether another attempt would fail too.
        """
        self.error = error
        self.error_is_final = is_final
        self.state = GangState.OVER

    def broken_off(self, error: str) -> None:
        """Kill all ranks because of an error in the agent, and set the gang to OVER."""
        self._end()
        self.error = error
        self.error_is_final = False
        self.state = GangState.OVER

    def rank_exited(self, rank_exit: RankExit) -> None:
        """Record the exit of one rank."""
        del self._living[rank_exit.rank]
        self.exit_codes[rank_exit.rank] = rank_exit.exit_code
        is_early = rank_exit.exit_code != 0 or not self._may_end_early
        if is_early and self.first_ended is None and self.state is GangState.RUNNING:
            self.first_ended = rank_exit.rank
        if rank_exit.exit_code != 0 and self.state is GangState.RUNNING:
            if rank_exit.exit_code is None:
                self.lost, self.loss = True, Loss.FORK_SERVER
            else:
                self.first_failed = rank_exit.rank
            self._end()
        if not self._living:
            self.state = GangState.OVER

    def cannot_save(self, error: str, *, no_room: bool) -> None:
        """Kill all ranks, because one of their checkpoints cannot be stored."""
        self.error, self.error_is_final = error, False
        self.not_saved, self.no_room = True, no_room
        if self.state in (GangState.STARTING, GangState.RUNNING):
            self._end()

    def kill(self) -> None:
        """Kill all ranks by order of the master."""
        if self.state in (GangState.STARTING, GangState.RUNNING):
            self.killed = True
            self._end()

    def lose(self, loss: Loss) -> None:
        """Kill all ranks because they cannot stay, for example because the agent exits."""
        if self.state in (GangState.STARTING, GangState.RUNNING) and not self.lost:
            self.lost, self.loss = True, loss
            self._end()

    def note_cut(self, cut: Cut) -> None:
        """Record that the ranks are lost, as the computer of others cannot be reached."""
        if self.state in (GangState.STARTING, GangState.RUNNING) and not self.lost:
            self.lost, self.loss, self.cut = True, Loss.CUT, cut

    def cut_off(self, cut: Cut) -> None:
        """Kill all ranks, because the computer of other ranks cannot be reached."""
        self.note_cut(cut)
        if self.loss is Loss.CUT:
            self._end()

    def _end(self) -> None:
        """Kill the ranks. If the gang is still STARTING, `started` does it."""
        if self.state is GangState.RUNNING:
            self.state = GangState.ENDING
            for pid in self._living.values():
                self._kill_group(pid)

    def to_report(self, at: float) -> GangExited:
        """Return the report of the gang's end for the master; `at` is in UTC seconds."""
        return GangExited(
            allocation_id=self.allocation_id,
            at=at,
            exit_codes=self.exit_codes,
            first_failed=self.first_failed,
            first_ended=self.first_ended,
            ended_at=self.ended_at,
            killed=self.killed,
            lost=self.lost,
            loss=self.loss,
            error=self.error,
            error_is_final=self.error_is_final,
            no_room=self.no_room,
            not_saved=self.not_saved,
            cut=self.cut,
        )
