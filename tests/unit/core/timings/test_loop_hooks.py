"""When a loop's records come, and which of its calls are no marks of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.core.timings import any_loop, rank_timings
from det_jupyter.core.timings.any_loop import LoopTimings
from tests.unit.core.timings.test_any_loop import BATCH, Iterated, Module, Script, twice

MS = 1_000_000


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Return a script whose clock is also that of the time between two records."""
    clock: list[Script] = []
    monkeypatch.setattr(any_loop, "perf_counter_ns", lambda: clock[0].now if clock else 0)
    clock.append(Script(warm=0))
    clock[0].loop.after_step(clock[0].optimizer, (), {})
    return clock[0]


@pytest.fixture
def _always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_loop, "PERIOD_NS", 0)  # a record after each step


def batches(script: Script) -> list[int]:
    return [each.batches for each in script.sink.records if isinstance(each, StepTimes)]


def with_loader(script: Script) -> None:
    script.data(ns=400 * MS)
    script.forward()
    script.backward()
    script.step()


def without_loader(script: Script) -> None:
    script.forward(ns=400 * MS)
    script.backward()
    script.step()


def counting(script: Script) -> None:
    script.now += 400 * MS
    script.profiler.step()


def with_two_optimizers(script: Script) -> None:
    with_loader(script)
    script.step(optimizer=script.model)


@pytest.mark.parametrize("train", [with_loader, without_loader, counting, with_two_optimizers])
def test_a_record_comes_after_the_batch_that_makes_it_a_second(
    script: Script, train: Callable[[Script], None]
) -> None:
    for _ in range(7):
        train(script)
    assert batches(script)[-1] == 3
    assert len(batches(script)) == 2


def test_each_record_counts_the_batches_since_the_last_one() -> None:
    script = Script()
    for num in (1, 3, 2):
        for _ in range(num):
            script.train()
        script.loop.flush()
    records = [each for each in script.sink.records if isinstance(each, StepTimes)]
    assert [(each.first, each.batches) for each in records] == [(2, 1), (3, 3), (6, 2)]
    for part in BATCH:
        assert [each.parts[part].num for each in records] == [1, 3, 2]


def test_a_long_validation_has_records_of_its_own(script: Script) -> None:
    for _ in range(2):
        script.train()
    script.loop.flush()
    del script.sink.records[:]
    evaluated = Iterated()
    for _ in range(9):
        script.data(evaluated, 300 * MS)
        script.forward(100 * MS, Module(training=False), has_gradients=False)
    assert len(batches(script)) >= 2
    assert set(batches(script)) == {0}
    record = script.sink.records[-1]
    assert isinstance(record, StepTimes)
    assert set(record.parts) == {"validation"}


def test_an_optimizer_that_steps_within_the_backward_pass_has_its_part() -> None:
    script = Script()

    def compute(_: Any) -> None:
        script.now += 100
        script.step(40)
        script.now += 200

    script.run_backward = script.loop.timed_backward(compute)
    for _ in range(2):
        script.data()
        script.now += 1
        script.forward()
        script.run_backward(None)
    parts = script.parts()
    assert (parts["optimizer"], parts["backward"]) == (80, 600)
    assert parts["forward"] == 400


def test_a_module_that_is_computed_again_within_the_backward_pass_is_part_of_it() -> None:
    script = Script()

    def compute(_: Any) -> None:
        script.loop.armed[any_loop.KEY] = script.loop.before_module
        script.forward(200, Module())
        script.loop.timed_backward(script.pass_by)(None)  # as of a penalty on gradients

    script.run_backward = script.loop.timed_backward(compute)
    for _ in range(2):
        script.data()
        script.now += 1
        script.forward()
        script.backward(100)
        script.step()
    assert script.parts() == twice(BATCH)


def test_calls_of_other_threads_and_of_a_compiler_are_no_marks() -> None:
    script = Script()
    script.train()
    thread = Thread(target=script.train)
    thread.start()
    thread.join()
    before = script.now
    script.loop.is_compiling = lambda: True
    script.forward(0)
    script.step(0)
    script.loop.is_compiling = bool
    script.now = before
    script.train()
    expected = twice(BATCH)
    expected["rest"] += 551
    assert script.parts() == expected


def test_a_loop_that_is_closed_is_timed_again_when_it_resumes() -> None:
    script = Script(steps=5)
    script.train()
    script.loop.close()
    script.train()
    script.loop.resume()
    for _ in range(3):  # the first begins
        script.train()
    script.loop.close()
    records = [each for each in script.sink.records if isinstance(each, StepTimes)]
    assert [(each.first, each.batches) for each in records] == [(7, 1), (9, 2)]
    assert not script.loop.armed


def test_a_run_that_is_over_is_not_timed_again_by_what_is_left_of_it() -> None:
    script = Script()
    script.train()
    script.loop.end_run()
    script.sink.records.clear()
    with script.profiler.driven():  # a trainer that was given its context
        pass
    for _ in range(3):
        script.train()
    script.loop.close()
    assert script.sink.records == []
    assert not script.loop.armed

    script.loop.begin_run(script.sink, 5, lambda: None)
    for _ in range(2):
        script.train()
    script.loop.close()
    (record,) = (each for each in script.sink.records if isinstance(each, StepTimes))
    assert (record.first, record.batches) == (7, 1)


@pytest.mark.usefixtures("_always_due")
def test_an_error_of_a_hook_ends_the_timing_and_is_none_of_the_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full:
        def write(self, record: object) -> None:
            raise OSError(errno.ENOSPC, "no room")

    script = Script()
    script.loop.begin_run(Full(), 0, lambda: None)
    for _ in range(3):
        script.train()
    script.loop.close()
    (line,) = caplog.messages
    assert line == ("timings: this run is not timed any more, because of OSError(28, 'no room')")
    assert not script.loop.armed

    def fail() -> None:
        raise OSError(errno.ENOSPC, "no page")

    script.loop.begin_run(script.sink, 0, fail)
    for _ in range(3):
        script.train()
    assert "no page" in caplog.messages[1]


@pytest.mark.usefixtures("_always_due")
@pytest.mark.parametrize("is_exchanged", [True, False])
def test_an_error_within_the_backward_pass_is_none_of_the_training(*, is_exchanged: bool) -> None:
    script = Script()

    def compute(_: Any) -> None:
        script.step()

    def write(record: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    backward = script.loop.timed_backward(compute)
    if is_exchanged:
        replica = SimpleNamespace(require_backward_grad_sync=True)
        script.loop.replicas.append(lambda: replica)
    for number in range(3):
        if number == 1:
            script.sink.write = write  # type: ignore[method-assign]  # its disk is full
        script.data()
        script.forward()
        backward(None)


def test_a_fork_within_a_timed_block_is_not_timed_and_may_begin_a_run() -> None:
    script = Script()
    with script.loop.timed_block("checkpoint"):
        script.loop.leave()
    script.train()
    script.loop.close()
    assert script.sink.records == []
    script.loop.begin_run(script.sink, 0, lambda: None)
    for _ in range(2):
        script.train()
    script.loop.close()
    assert [each.batches for each in script.sink.records if isinstance(each, StepTimes)] == [1]


@pytest.mark.parametrize("is_exchanged", [True, False])
def test_replicas_exchange_at_the_end_of_a_backward_pass(
    is_exchanged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, queued = Script(), list[Callable[[], None]]()
    monkeypatch.setattr(rank_timings, "queue_of_engine", lambda: queued.append)
    replica = SimpleNamespace(require_backward_grad_sync=is_exchanged)
    script.loop.replicas = [lambda: None, lambda: replica]

    def compute(_: Any) -> None:
        for _ in range(2):
            script.now += 100
            script.loop.within_backward(None)
        while queued:
            queued.pop()()
        script.now += 100

    script.run_backward = script.loop.timed_backward(compute)
    for _ in range(2):
        script.data()
        script.now += 1
        script.forward()
        script.run_backward(None)
        script.step()
    expected = BATCH | ({"backward": 200, "exchange": 100} if is_exchanged else {})
    assert script.parts() == twice(expected)


def test_an_error_in_a_call_ends_its_part() -> None:
    script = Script()

    def fail(_: Any) -> None:
        script.now += 300
        raise ValueError("no room")

    script.data()
    script.now += 1
    script.forward()
    with pytest.raises(ValueError, match="no room"):
        script.loop.timed_backward(fail)(None)
    script.step()
    script.train()
    assert script.parts() == twice(BATCH)


def test_counters_are_taken_once() -> None:
    script = Script()
    script.profiler.count("tokens", 2)
    assert [script.loop.take()[1] for _ in range(2)] == [{"tokens": 2}, {}]
    assert LoopTimings(script.sink).take() == ([], {}), "of no profiler"
