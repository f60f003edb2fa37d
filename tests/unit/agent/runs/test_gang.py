"""A gang's life: whole or not at all, and the first cause stays the cause."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.runs.gang import Gang, GangState
from det_jupyter.agent.starting.rank_processes import RankExit
from det_jupyter.contract.messages import Cut, Loss


class Kills:
    def __init__(self) -> None:
        self.pids: list[int] = []

    def __call__(self, pid: int) -> None:
        self.pids.append(pid)


def make_gang(world_size: int = 3, *, started: bool = True) -> tuple[Gang, Kills]:
    kills = Kills()
    gang = Gang("1.1.1", range(world_size), kill_group=kills)
    if started:
        gang.started({rank: 100 + rank for rank in range(world_size)})
    return gang, kills


def test_ranks_that_exit_with_0_leave_the_others_running() -> None:
    gang, kills = make_gang(2)
    gang.rank_exited(RankExit(1, 0))
    assert (gang.state, kills.pids) == (GangState.RUNNING, [])
    gang.rank_exited(RankExit(0, 0))
    assert gang.state is GangState.OVER
    report = gang.to_report(at=5.0)
    assert report.exit_codes == {0: 0, 1: 0}
    assert report.first_ended == 1
    assert (report.first_failed, report.killed, report.lost) == (None, False, False)
    assert (report.error, report.error_is_final, report.cut) == ("", True, None)
    assert (report.not_saved, report.no_room) == (False, False)


def test_first_failing_rank_ends_the_gang_and_is_the_one_named() -> None:
    gang, kills = make_gang(3)
    gang.rank_exited(RankExit(1, 7))
    assert (gang.state, kills.pids) == (GangState.ENDING, [100, 102])
    gang.rank_exited(RankExit(0, -9))
    gang.rank_exited(RankExit(2, 1))
    report = gang.to_report(at=5.0)
    assert report.exit_codes == {0: -9, 1: 7, 2: 1}
    assert (report.first_failed, report.killed, report.lost) == (1, False, False)


def test_kill_ends_every_rank_and_names_none() -> None:
    gang, kills = make_gang(2)
    gang.kill()
    assert kills.pids == [100, 101]
    gang.rank_exited(RankExit(0, -9))
    gang.rank_exited(RankExit(1, -9))
    report = gang.to_report(at=5.0)
    assert (report.first_failed, report.killed, report.lost) == (None, True, False)


def test_kill_after_a_failure_does_not_change_the_cause() -> None:
    gang, kills = make_gang(2)
    gang.rank_exited(RankExit(1, 1))
    gang.kill()
    assert kills.pids == [100]
    gang.rank_exited(RankExit(0, -9))
    report = gang.to_report(at=5.0)
    assert (report.first_failed, report.killed) == (1, False)


def test_gang_that_was_killed_before_it_started_is_ended_as_soon_as_it_exists() -> None:
    gang, kills = make_gang(2, started=False)
    gang.kill()
    assert gang.state is GangState.STARTING
    gang.started({0: 100, 1: 101})
    assert (gang.state, kills.pids) == (GangState.ENDING, [100, 101])


def test_gang_that_could_not_be_started_is_over_and_says_why() -> None:
    gang, _ = make_gang(2, started=False)
    gang.not_started("no such interpreter", is_final=True)
    report = gang.to_report(at=5.0)
    assert gang.is_over
    assert (report.error, report.exit_codes) == ("no such interpreter", {0: None, 1: None})
    assert report.error_is_final


def test_gang_that_is_broken_off_is_killed_over_and_worth_another_try() -> None:
    gang, kills = make_gang(3)
    gang.rank_exited(RankExit(1, 0))
    gang.broken_off("OSError: too many open files")
    assert (kills.pids, gang.pids) == ([100, 102], {0: 100, 2: 102})
    report = gang.to_report(at=5.0)
    assert gang.is_over
    assert (report.error, report.error_is_final) == ("OSError: too many open files", False)


def test_gang_whose_checkpoint_cannot_be_stored_is_killed_and_worth_another_try() -> None:
    gang, kills = make_gang(2)
    gang.cannot_save("no room there", no_room=True)
    assert kills.pids == [100, 101]
    gang.rank_exited(RankExit(0, -9))
    gang.rank_exited(RankExit(1, -9))
    report = gang.to_report(at=5.0)
    assert (report.error, report.error_is_final) == ("no room there", False)
    assert report.not_saved
    assert report.no_room
    assert report.first_failed is None


def test_rank_whose_end_nobody_saw_makes_the_gang_lost() -> None:
    gang, kills = make_gang(2)
    gang.rank_exited(RankExit(0, None))
    assert kills.pids == [101]
    gang.rank_exited(RankExit(1, None))
    report = gang.to_report(at=5.0)
    assert (report.first_failed, report.killed, report.lost) == (None, False, True)
    assert report.loss is Loss.FORK_SERVER


def test_gang_of_a_leaving_agent_is_lost_not_killed() -> None:
    gang, kills = make_gang(2)
    gang.lose(Loss.LEAVING)
    assert kills.pids == [100, 101]
    for rank in (0, 1):
        gang.rank_exited(RankExit(rank, -9))
    report = gang.to_report(at=5.0)
    assert (report.killed, report.lost, report.loss) == (False, True, Loss.LEAVING)


def test_the_first_loss_counts_also_of_a_gang_that_starts() -> None:
    gang, _ = make_gang(2, started=False)
    gang.lose(Loss.MASTER)
    gang.lose(Loss.FORK_SERVER)
    gang.not_started("the fork server was killed", is_final=False)
    report = gang.to_report(at=5.0)
    assert (report.lost, report.loss) == (True, Loss.MASTER)


@given(st.data())
def test_gang_is_over_exactly_when_every_rank_is_gone(data: st.DataObject) -> None:
    world_size = data.draw(st.integers(1, 5))
    gang, kills = make_gang(world_size)
    living = set(range(world_size))
    while living:
        assert not gang.is_over
        act = data.draw(st.sampled_from(["exit", "kill", "lose"]))
        if act == "exit":
            rank = data.draw(st.sampled_from(sorted(living)))
            living.discard(rank)
            gang.rank_exited(RankExit(rank, data.draw(st.sampled_from([0, 1, -9, None]))))
        elif act == "kill":
            gang.kill()
        else:
            gang.lose(Loss.LEAVING)
        if gang.state is GangState.ENDING:
            assert {100 + rank for rank in living} <= set(kills.pids)
    report = gang.to_report(at=5.0)
    causes = [report.first_failed is not None, report.killed, report.lost]
    assert gang.is_over
    assert sum(causes) == (0 if set(report.exit_codes.values()) == {0} and not kills.pids else 1)
    assert len(kills.pids) == len(set(kills.pids))


def test_a_program_that_exits_with_0_is_not_the_one_that_ended_first() -> None:
    gang = Gang("1.1.1", [0, 2], kill_group=Kills(), may_end_early=True)
    gang.started({0: 100, 2: 102})
    gang.rank_exited(RankExit(2, 0))
    gang.rank_exited(RankExit(0, 3))
    report = gang.to_report(at=5.0)
    assert report.exit_codes == {0: 3, 2: 0}
    assert (report.first_ended, report.first_failed) == (0, 0)


@given(st.sampled_from(["kill", "lose", "cannot_save"]), st.booleans())
def test_the_end_that_was_ordered_before_it_started_is_the_cause(order: str, twice: bool) -> None:
    gang, kills = make_gang(2, started=False)
    for _ in range(1 + twice):
        match order:
            case "kill":
                gang.kill()
            case "lose":
                gang.lose(Loss.MASTER)
            case _:
                gang.cannot_save("no room there", no_room=False)
    assert (gang.state, kills.pids) == (GangState.STARTING, [])
    gang.started({0: 100, 1: 101})
    assert (gang.state, kills.pids) == (GangState.ENDING, [100, 101])
    gang.kill()
    gang.lose(Loss.LEAVING)
    report = gang.to_report(at=5.0)
    causes = (report.killed, report.lost, report.not_saved, report.no_room)
    assert causes == (order == "kill", order == "lose", order == "cannot_save", False)


def test_a_computer_that_was_cut_off_after_another_loss_is_not_the_cause() -> None:
    cut = Cut(from_agent="a", to_agent="b", why="no answer")
    gang, _ = make_gang(2)
    gang.cut_off(cut)
    assert (gang.to_report(at=5.0).loss, gang.to_report(at=5.0).cut) == (Loss.CUT, cut)
    gang, _ = make_gang(2)
    gang.lose(Loss.LEAVING)
    gang.cut_off(cut)
    assert (gang.to_report(at=5.0).loss, gang.to_report(at=5.0).cut) == (Loss.LEAVING, None)


def test_ranks_that_save_and_exit_after_a_cut_have_not_failed() -> None:
    cut = Cut(from_agent="a", to_agent="b", why="no answer")
    gang, kills = make_gang(2)
    gang.note_cut(cut)
    assert kills.pids == []
    gang.rank_exited(RankExit(0, 1))
    gang.cut_off(cut)
    assert kills.pids == [101]
    gang.rank_exited(RankExit(1, -9))
    report = gang.to_report(at=5.0)
    assert (report.lost, report.loss, report.cut) == (True, Loss.CUT, cut)
