"""What the end of a gang means for its trial, and which failure is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from det_jupyter.contract.messages import (
    CrashOutput,
    DeviceFault,
    FailureView,
    GangExited,
    MemoryShortage,
    State,
)
from det_jupyter.contract.run.journal import RankFailure, RunEnded
from det_jupyter.contract.values.device_memory import DeviceShortage
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.rules.outcome import (
    GangOutcome,
    count_repeats,
    failure_after_losses,
    find_failure,
    judge,
    loss_text,
    lost_device,
    lost_run,
    will_repeat,
)

Reason = Literal["completed", "preempted", "stopped", "invalid_hp"]


def make_trial(state: State = State.ACTIVE) -> Trial:
    return Trial(
        id=1, experiment_id=1, hparams={}, seed=0, state=state, is_resting=False, created_at=0.0
    )


def make_allocation(reason: Reason | None = None, *failures: RankFailure) -> Allocation:
    run_end = None
    if reason is not None:
        run_end = RunEnded(at=5.0, reason=reason, steps_completed=10)
    return Allocation(id="1.1.1", run=1, queued_at=0.0, run_end=run_end, failures=list(failures))


def failure(rank: int, *, at: float = 5.0, final: bool = False) -> RankFailure:
    return RankFailure(
        at=at,
        rank=rank,
        error=f"ValueError: rank {rank}",
        traceback=f"Traceback of {rank}",
        where="Cell In[2], line 3",
        final=final,
    )


def exited(codes: dict[int, int | None] | None = None, **facts: Any) -> GangExited:
    return GangExited(allocation_id="1.1.1", at=9.0, exit_codes=codes or {}, **facts)


@pytest.mark.parametrize(
    ("state", "reason", "facts", "outcome"),
    [
        (State.ACTIVE, "completed", {}, GangOutcome.COMPLETED),
        (State.ACTIVE, "stopped", {}, GangOutcome.COMPLETED),
        (State.ACTIVE, "invalid_hp", {"first_failed": 0}, GangOutcome.INVALID),
        (State.ACTIVE, "preempted", {}, GangOutcome.PREEMPTED),
        (State.ACTIVE, None, {"killed": True}, GangOutcome.PREEMPTED),
        (State.ACTIVE, None, {"lost": True}, GangOutcome.LOST),
        (State.ACTIVE, None, {"first_failed": 1}, GangOutcome.FAILED),
        (State.ACTIVE, None, {}, GangOutcome.FAILED),
        (State.ACTIVE, None, {"error": "no zygote"}, GangOutcome.FAILED),
        # A paused trial is judged as an active one: it only does not queue again.
        (State.PAUSED, "completed", {}, GangOutcome.COMPLETED),
        (State.PAUSED, "preempted", {}, GangOutcome.PREEMPTED),
        (State.PAUSED, None, {"first_failed": 1}, GangOutcome.FAILED),
        # It had saved everything and reported so before its agent exited.
        (State.ACTIVE, "completed", {"lost": True}, GangOutcome.COMPLETED),
        (State.ACTIVE, "preempted", {"lost": True}, GangOutcome.PREEMPTED),
        # Once the trial is stopping, nothing is an error.
        (State.STOPPING_CANCELED, "preempted", {}, GangOutcome.ENDED_AS_ASKED),
        (State.STOPPING_CANCELED, None, {"first_failed": 1}, GangOutcome.ENDED_AS_ASKED),
        (State.STOPPING_KILLED, None, {"killed": True}, GangOutcome.ENDED_AS_ASKED),
        (State.STOPPING_KILLED, "completed", {}, GangOutcome.ENDED_AS_ASKED),
        (State.STOPPING_COMPLETED, "preempted", {}, GangOutcome.ENDED_AS_ASKED),
    ],
)
def test_what_an_exit_means(
    state: State, reason: Reason | None, facts: dict[str, Any], outcome: GangOutcome
) -> None:
    assert judge(make_trial(state), make_allocation(reason), exited(**facts)) is outcome


def test_a_canceled_trial_whose_code_fails_before_it_has_saved_has_failed() -> None:
    allocation = make_allocation(None, failure(0))
    trial = make_trial(State.STOPPING_CANCELED)
    assert judge(trial, allocation, exited({0: 1}, first_failed=0)) is GangOutcome.FAILED


@pytest.mark.parametrize(
    ("state", "reason", "facts"),
    [
        (
            State.STOPPING_CANCELED,
            "preempted",
            {"first_failed": 0},
        ),  # it had reported that it leaves
        (State.STOPPING_CANCELED, None, {"killed": True}),
        (State.STOPPING_CANCELED, None, {"lost": True}),
        (State.STOPPING_CANCELED, None, {"codes": {0: 143}}),  # its command was ended by others
        (State.STOPPING_KILLED, None, {"first_failed": 0}),
        (State.STOPPING_COMPLETED, None, {"first_failed": 0}),
    ],
)
def test_otherwise_a_failure_on_the_way_out_is_none(
    state: State, reason: Reason | None, facts: dict[str, Any]
) -> None:
    allocation = make_allocation(reason, failure(0))
    assert judge(make_trial(state), allocation, exited(**facts)) is GangOutcome.ENDED_AS_ASKED


@pytest.mark.parametrize("state", [State.ACTIVE, State.PAUSED])
def test_whoever_saved_after_being_asked_to_leave_was_preempted_even_if_a_rank_failed(
    state: State,
) -> None:
    allocation = make_allocation(None, failure(1))
    allocation.is_for_rest = True
    outcome = judge(make_trial(state), allocation, exited({1: 1}, first_failed=1))
    assert outcome is GangOutcome.PREEMPTED


def test_the_earliest_failure_is_the_cause_whichever_rank_is_named() -> None:
    allocation = make_allocation(None, failure(0, at=6.0), failure(1, at=5.0))
    view, is_final = find_failure(allocation, exited({0: 1, 1: 1}, first_failed=0))
    assert view == FailureView(
        rank=1,
        exit_code=1,
        error="ValueError: rank 1",
        where="Cell In[2], line 3",
        traceback="Traceback of 1",
        at=5.0,
    )
    assert not is_final


def test_a_failure_that_will_come_again_is_final() -> None:
    allocation = make_allocation(None, failure(0, final=True))
    assert find_failure(allocation, exited({0: 1}, first_failed=0))[1]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (-9, "rank 1 was killed by SIGKILL (by hand, or out of memory)"),
        (-11, "rank 1 was killed by SIGSEGV"),
        (-77, "rank 1 was killed by signal 77"),
        (3, "rank 1 ended with exit status 3; its output may have the reason"),
    ],
)
def test_a_rank_that_died_without_a_word_is_told_by_its_exit_status(code: int, error: str) -> None:
    codes: dict[int, int | None] = {0: -9, 1: code}
    view, is_final = find_failure(make_allocation(), exited(codes, first_failed=1))
    assert view == FailureView(rank=1, exit_code=code, error=error, at=9.0)
    assert not is_final


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (-11, "rank 0 was killed by SIGSEGV in batch 7: a cause"),
        (
            0,
            "rank 0 ended with exit code 0 in batch 7, before the trial was over: its code, or a "
            "library, called os._exit or became another program (exec): a cause",
        ),
        (3, "rank 0 ended with exit status 3 in batch 7; its output may have the reason: a cause"),
    ],
)
def test_the_first_rank_that_ended_is_told_with_what_it_printed(code: int, error: str) -> None:
    echo = failure(1, at=5.0)
    words = CrashOutput(error="a cause", where="Cell In[5], line 2, in f", traceback="The stack\n")
    codes: dict[int, int | None] = {0: code, 1: 1}
    told = exited(codes, first_ended=0, first_failed=1, batch=7, last_words=words)
    view, is_final = find_failure(make_allocation(None, echo), told)
    assert view == FailureView(
        rank=0,
        exit_code=code,
        error=error,
        where="Cell In[5], line 2, in f",
        traceback="The stack\n",
        at=9.0,
        batch=7,
    )
    assert not is_final


def crash(code: int, *, batch: int | None, where: str = "") -> FailureView:
    words = CrashOutput(where=where)
    codes: dict[int, int | None] = {0: code}
    facts = exited(codes, first_ended=0, batch=batch, last_words=words)
    return find_failure(make_allocation(), facts)[0]


@pytest.mark.parametrize(
    ("code", "batches", "hopeless"),
    [
        (-11, [7], False),
        (-11, [7, 7], True),
        (-11, [7, 9], False),
        (-11, [None, None], True),  # before the first batch; others do not send this signal
        (-6, [7, 7], True),
        (3, [7, 7], True),
        (1, [7, 7], True),
        (1, [7, 8], False),
        (1, [None, None], False),
        (0, [7, 7], True),
        (-9, [7, 7], False),  # it may have been killed twice by hand
        (-9, [7, 7, 7], True),
        (-9, [7, 8, 8], False),
        (-9, [None, None, None], False),
        (-15, [7, 7, 7], True),
        (137, [7, 7], False),  # a shell says so of a command that was killed
        (137, [7, 7, 7], True),
        (143, [None, None, None], False),
    ],
)
def test_a_crash_that_repeats_at_the_same_batch_is_not_tried_again(
    code: int, batches: list[int | None], hopeless: bool
) -> None:
    told: FailureView | None = None
    for batch in batches:
        told = count_repeats(crash(code, batch=batch), told, since_checkpoint=False)
    assert told is not None
    assert will_repeat(told) is hopeless


def test_an_error_that_others_have_caused_counts_as_a_signal_does() -> None:
    worker = FailureView(
        rank=0, exit_code=1, error="DataLoader worker (pid 7) is killed", at=9.0, batch=7
    )
    by_others = worker.model_copy(update={"by_others": True})
    for times, own, of_others in ((2, True, False), (3, True, True)):
        assert will_repeat(worker.model_copy(update={"times": times})) is own
        assert will_repeat(by_others.model_copy(update={"times": times})) is of_others


@pytest.mark.parametrize(
    ("before", "now", "times"),
    [
        ((None, "ValueError: no"), (None, "ValueError: no"), 1),  # it may have progressed
        ((7, "ValueError: no"), (9, "ValueError: no"), 1),
        ((7, "ValueError: no"), (7, "ValueError: no"), 2),
        (
            (7, "out of memory, process 81 has 2.5 GiB"),
            (7, "out of memory, process 9 has 3 GiB"),
            2,
        ),
        ((7, "<Net at 0x7f3a> failed"), (7, "<Net at 0x81cd> failed"), 2),
        ((7, "ValueError: no"), (7, "KeyError: no"), 1),
        ((7, "out of memory, process 81"), (8, "out of memory, process 9"), 1),
    ],
)
def test_a_failure_with_a_checkpoint_in_between_is_the_same_in_the_same_batch(
    before: tuple[int | None, str], now: tuple[int | None, str], times: int
) -> None:
    first, second = (
        FailureView(rank=0, exit_code=1, error=error, where="line 2", at=9.0, batch=batch)
        for batch, error in (before, now)
    )
    told = count_repeats(second, first, since_checkpoint=True)
    assert told.times == times
    assert will_repeat(told) is (times == 2)
    other_place = second.model_copy(update={"where": "line 3"})
    assert count_repeats(other_place, first, since_checkpoint=True).times == 1


def test_a_killed_rank_comes_before_the_failures_of_the_ranks_that_lost_it() -> None:
    allocation = make_allocation(None, failure(0, at=5.0))
    view, _ = find_failure(allocation, exited({0: 1, 1: -9}, first_failed=1))
    assert view.rank == 1
    assert view.error == "rank 1 was killed by SIGKILL (by hand, or out of memory)"


def test_a_start_that_failed_for_a_passing_reason_is_not_final() -> None:
    facts = exited({0: None}, error="[Errno 12] Cannot allocate memory", error_is_final=False)
    view, is_final = find_failure(make_allocation(), facts)
    assert view.error == "[Errno 12] Cannot allocate memory"
    assert not is_final


def test_a_gang_that_could_not_be_started_will_not_start_the_next_time_either() -> None:
    facts = exited({0: None, 1: None}, error="ModuleNotFoundError: No module named 'torch'")
    view, is_final = find_failure(make_allocation(), facts)
    assert view == FailureView(
        rank=None, exit_code=None, error="ModuleNotFoundError: No module named 'torch'", at=9.0
    )
    assert is_final


def test_ranks_that_end_well_without_a_word_have_failed_too() -> None:
    view, is_final = find_failure(make_allocation(), exited({0: 0, 1: 0}))
    assert view == FailureView(
        rank=None, exit_code=None, error="the ranks ended, and none has reported an error", at=9.0
    )
    assert not is_final


SHORTAGE = MemoryShortage(limit_bytes=4 * 10**9, is_of_group=True)
RAN_OUT = "the memory of its control group (container or job), 4.0 GB, ran out"


def test_a_rank_that_the_kernel_killed_is_no_kill_by_hand() -> None:
    end = exited({0: -9}, first_failed=0, first_ended=0, batch=3, memory=SHORTAGE)
    view, _ = find_failure(make_allocation(), end)
    assert view.error.startswith(f"rank 0 was killed by the kernel in batch 3: {RAN_OUT}; try")
    assert view.no_memory
    other = view.model_copy(update={"error": "rank 0 was killed by the kernel: others held it"})
    again = count_repeats(view, other, since_checkpoint=True)
    assert again.times == 2
    assert will_repeat(again), "a signal by hand would be tried once more"


def fault(xid: int | None, at: float = 8.0) -> DeviceFault:
    return DeviceFault(index=3, at=at, xid=xid)


def test_a_crash_says_what_its_gpu_reported() -> None:
    end = exited({0: 1, 1: 1}, first_failed=1, faults={1: fault(31)})
    view, _ = find_failure(make_allocation(None, failure(1)), end)
    assert view.error == (
        "ValueError: rank 1; GPU 3 had an error "
        "(Xid 31: access to memory that is not mapped, in general a wrong index)"
    )
    assert judge(make_trial(), make_allocation(), end) is GangOutcome.FAILED
    end = exited({0: 1, 1: -9}, first_failed=0, faults={1: fault(31)})
    view, _ = find_failure(make_allocation(None, failure(0)), end)
    assert view.error == "ValueError: rank 0", "the GPU of another rank"


@pytest.mark.parametrize("xid", [None, 48, 79, 95, 119])
def test_a_lost_gpu_is_no_failure_of_the_trial(xid: int | None) -> None:
    end = exited({0: 1, 1: -9}, first_failed=0, faults={1: fault(xid)})
    assert (
        judge(make_trial(), make_allocation(None, failure(0, final=True)), end) is GangOutcome.LOST
    )
    assert lost_device(end) == (1, fault(xid))
    stopping = make_trial(State.STOPPING_CANCELED)
    assert judge(stopping, make_allocation(), end) is GangOutcome.ENDED_AS_ASKED
    error = failure_after_losses([lost_run(1, end, loss_text(end, "box"))] * 5).error
    assert str(fault(xid)) in error
    assert "memory; see agent.log" not in error


def test_a_gpu_without_memory_says_what_held_it_and_a_repeat_may_name_others() -> None:
    held = DeviceShortage(total=8 * 10**9, used=8 * 10**9, allocated=10**9, reserved=10**9)
    end = exited({0: 1}, first_failed=0)
    record = replace(failure(0), device_memory=held)
    view, _ = find_failure(make_allocation(None, record), end)
    assert view.error == f"ValueError: rank 0; {held}"
    assert (view.device_memory, view.no_memory) == (held, True)


def test_a_kill_by_hand_says_that_there_was_memory() -> None:
    end = exited({0: -9}, first_failed=0, first_ended=0, had_memory=True)
    view, _ = find_failure(make_allocation(), end)
    assert view.error == (
        "rank 0 was killed by SIGKILL (by hand or another program; the kernel has killed nothing "
        "for want of memory)"
    )
    assert not view.no_memory


@pytest.mark.parametrize(
    ("lost_pid", "pids", "is_told"),
    [(7, [], True), (7, [7, 8], True), (0, [8], True), (7, [8], False), (None, [], False)],
)
def test_a_worker_that_the_kernel_killed_is_told(
    lost_pid: int | None, pids: list[int], is_told: bool
) -> None:
    lost = replace(failure(0), error="loader worker 1 was killed", lost_pid=lost_pid)
    memory = SHORTAGE.model_copy(update={"pids": pids})
    end = exited({0: 1}, first_failed=0, first_ended=0, memory=memory)
    view, _ = find_failure(make_allocation(None, lost), end)
    assert (f"was killed: killed by the kernel: {RAN_OUT}; try" in view.error) is is_told
    assert view.no_memory is is_told


def test_the_stack_of_a_worker_that_crashed_is_that_of_the_failure() -> None:
    lost = replace(failure(0), error="loader worker 1 was killed by SIGSEGV", lost_pid=7)
    crash = CrashOutput(where="Cell In[5], line 3, in __getitem__", traceback="Stack\n")
    end = exited({0: 1, 1: None}, first_failed=0, first_ended=0, last_words=crash)
    view, _ = find_failure(make_allocation(None, lost), end)
    assert (view.where, view.traceback) == (crash.where, f"Stack\n\n{lost.error}\n")
