"""Parts of loops that only torch's hooks report, exactly, on a clock that the test moves."""

from __future__ import annotations

import random
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.run.journal import StepTimes, parse_line, to_line
from det_jupyter.core import ProfilerContext, RecordList
from det_jupyter.core.timings import any_loop, loop_calls
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.clocks import HostClock
from det_jupyter.core.timings.intervals import CODES
from det_jupyter.core.timings.loop_calls import LoopCalls


class Iterated:
    """An iterator of a DataLoader."""


class Module:
    def __init__(self, *, training: bool = True) -> None:
        self.training = training


class Script:
    """Calls what hooks would call; each call takes the given time, in ns."""

    def __init__(self, steps: int = 0, warm: int = 1) -> None:
        self.now = 1_000
        self.sink = RecordList()
        self.profiler = ProfilerContext(self.sink)
        clock = HostClock(lambda: self.now)
        self.loop = LoopTimings(self.sink, steps, open_clock=lambda _: clock)
        self.profiler.follow(self.loop)
        self.takes = 0  # of the call that is under way
        self.loop.has_gradients = lambda: self.has_gradients
        self.get = self.loop.timed_next(self.pass_by)
        self.run_backward = self.loop.timed_backward(self.pass_by)
        self.optimizer, self.model, self.iterator = object(), Module(), Iterated()
        for _ in range(warm):
            self.loop.after_step(self.optimizer, (), {})

    def pass_by(self, _: Any) -> None:
        self.now += self.takes
        if self.is_over:
            raise StopIteration

    def data(self, iterator: Any = None, ns: int = 10, *, is_over: bool = False) -> None:
        self.takes, self.is_over = ns, is_over
        with suppress(StopIteration):
            self.get(iterator or self.iterator)

    def forward(
        self,
        ns: int = 200,
        model: Any = None,
        *,
        has_gradients: bool = True,
        follows: bool = False,
    ) -> None:
        self.has_gradients = has_gradients
        for hook in list(self.loop.armed.values()):
            hook(model or self.model, (SimpleNamespace(requires_grad=follows, grad_fn=0),))
        self.now += ns

    def backward(self, ns: int = 300) -> None:
        self.takes, self.is_over = ns, False
        self.run_backward(None)

    def step(self, ns: int = 40, optimizer: Any = None) -> None:
        self.loop.before_step(optimizer or self.optimizer, (), {})
        self.now += ns
        self.loop.after_step(optimizer or self.optimizer, (), {})

    def train(self, *, iterator: Any = None) -> None:
        self.data(iterator)
        self.now += 1
        self.forward()
        self.backward()
        self.step()

    def evaluate(self, iterator: Any, num: int, *, is_over: bool = True) -> None:
        model = Module(training=False)
        for _ in range(num):
            self.data(iterator)
            self.forward(50, model, has_gradients=False)
        if is_over:
            self.data(iterator, 0, is_over=True)

    def times(self) -> StepTimes:
        """Return the one record of all that was called."""
        if not self.sink.records:
            self.loop.flush()
        [record] = [each for each in self.sink.records if isinstance(each, StepTimes)]
        assert parse_line(to_line(record)) == record
        assert record.own_loop
        whole = sum(each.total for name, each in record.parts.items() if "section." not in name)
        assert whole == pytest.approx(record.seconds)
        return record

    def parts(self) -> dict[str, int]:
        return {name: round(each.total * 1e9) for name, each in self.times().parts.items()}


BATCH = {"dataloader_next": 10, "rest": 1, "forward": 200, "backward": 300, "optimizer": 40}


def twice(parts: dict[str, int], **more: int) -> dict[str, int]:
    return {name: 2 * ns for name, ns in parts.items()} | more


def test_a_batch_is_a_step_and_the_first_one_is_not_timed() -> None:
    script = Script(steps=7)
    script.train()
    script.train()
    assert script.parts() == twice(BATCH)
    record = script.times()
    assert (record.first, record.batches, record.samples) == (9, 2, 0)
    assert record.parts["forward"].num == 2


def test_all_data_whose_gradients_a_step_uses_are_one_batch() -> None:
    script = Script()
    for _ in range(3):
        script.data()
        script.forward()
        script.backward()
    script.step()
    assert script.parts() == {
        "dataloader_next": 30, "forward": 600, "backward": 900, "optimizer": 40, "rest": 0,
    }  # fmt: skip
    assert script.times().batches == 1


def test_a_loop_without_data_loader_has_what_comes_before_the_module_in_the_rest() -> None:
    script = Script()
    for _ in range(2):
        script.now += 70
        script.forward()
        script.backward()
        script.step()
    expected = {"forward": 200, "backward": 300, "optimizer": 40, "rest": 70}
    assert script.parts() == twice(expected)


def test_without_a_module_seen_forward_begins_when_the_data_are_there() -> None:
    script = Script()
    script.data()
    script.loop.armed.clear()  # a compiled function calls the module
    script.forward()
    script.backward()
    script.step()
    assert script.parts() == {
        "dataloader_next": 10, "forward": 200, "backward": 300, "optimizer": 40, "rest": 0,
    }  # fmt: skip


def test_a_trainer_that_computes_within_the_optimizers_step_has_the_same_parts() -> None:
    script = Script()
    for _ in range(2):
        script.data()
        script.now += 1
        script.loop.before_step(script.optimizer, (), {})
        script.loop.before_step(
            script.optimizer, (), {}
        )  # a class that extends the step of another
        script.forward()
        script.backward()
        script.now += 40
        script.loop.after_step(script.optimizer, (), {})
        script.loop.after_step(script.optimizer, (), {})
    assert script.parts() == twice(BATCH)
    assert script.times().batches == 2


def test_optimizers_that_step_in_turn_step_once_for_a_batch() -> None:
    script, critic = Script(warm=0), object()
    for _ in range(3):
        for optimizer in (critic, script.optimizer):
            script.forward()
            script.backward()
            script.step(optimizer=optimizer)
    assert script.times().batches == 3  # of five steps, after the first one


def test_a_validation_is_what_is_read_without_a_backward_pass() -> None:
    script = Script()
    script.train()
    script.data(is_over=True)
    script.evaluate(Iterated(), 4)
    script.now += 5
    script.train(iterator=Iterated())
    expected = twice(BATCH, validation=4 * 60)
    expected["dataloader_next"] += 10
    expected["rest"] += 5
    assert script.parts() == expected
    assert script.times().parts["validation"].num == 1


@pytest.mark.parametrize("is_over", [True, False])
def test_a_short_validation_is_one_too(is_over: bool) -> None:
    script = Script()
    script.train()
    script.evaluate(Iterated(), 1, is_over=is_over)
    script.train()
    assert script.parts() == twice(BATCH, validation=60)


def test_fetching_ahead_is_no_validation() -> None:
    script = Script()
    script.data()
    for _ in range(2):
        script.train()
    expected = twice(BATCH)
    expected["dataloader_next"] += 10
    assert script.parts() == expected


def test_all_batches_of_a_step_that_are_fetched_at_once_are_no_validation() -> None:
    """As transformers.Trainer does with gradient_accumulation_steps."""
    script = Script()
    script.train()  # shows that calls of the module are seen
    for _ in range(2):
        for _ in range(8):
            script.data()
        for _ in range(8):
            script.forward()
            script.backward()
        script.step()
    parts = script.parts()
    assert "validation" not in parts
    assert parts["dataloader_next"] == 170


def test_forward_begins_with_the_data_if_only_the_loss_is_seen() -> None:
    """A compiled function calls the module, and validates without a loss."""
    script = Script()
    for _ in range(2):
        script.data()
        script.now += 150
        script.forward(50, follows=True)
        script.backward()
        script.step()
    parts = script.parts()
    assert (parts["forward"], parts["rest"]) == (400, 0)


def test_an_unseen_validation_is_one_though_a_loss_is_seen_in_training() -> None:
    script = Script()
    script.data()
    script.forward(follows=True)
    script.backward()
    script.step()
    evaluated = Iterated()
    for _ in range(5):
        script.data(evaluated)
        script.now += 50
    script.data(evaluated, 0, is_over=True)
    assert script.parts()["validation"] == 5 * 60


def test_marks_of_a_loop_without_steps_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_loop, "_MOST_MARKS", 10)
    script = Script()
    for _ in range(20):
        script.forward()
        script.backward()
    assert len(script.loop._at) <= 14
    assert script.sink.records


def test_a_single_batch_that_was_fetched_ahead_is_trained() -> None:
    """Its iterator is over before the batch is trained, as after a validation."""
    script = Script()
    script.data()
    script.data(ns=0, is_over=True)
    script.now += 1
    script.forward()
    script.backward()
    script.step()
    assert script.parts() == BATCH


def test_a_module_without_gradients_beside_the_trained_one_is_no_validation() -> None:
    script = Script()
    for _ in range(5):
        script.data()
        script.forward(7, Module(training=False), has_gradients=False)
        script.forward()
        script.backward()
        script.step()
    assert script.parts() == {
        "dataloader_next": 50, "forward": 1035, "backward": 1500, "optimizer": 200, "rest": 0,
    }  # fmt: skip


def test_the_trained_module_in_eval_mode_without_data_loader_validates() -> None:
    script = Script()

    def train() -> None:
        script.forward()
        script.backward()
        script.step()

    train()
    script.model.training = False
    script.forward(500, has_gradients=False)
    script.model.training = True
    script.now += 200
    script.backward()
    script.step()
    train()
    parts = script.parts()
    assert (parts["validation"], parts["forward"]) == (700, 400)


def test_a_block_includes_what_the_loop_does_in_it() -> None:
    script = Script()
    script.train()
    with script.loop.timed_block("checkpoint"):
        script.now += 90
    script.train()
    assert script.parts() == twice(BATCH, checkpoint=90)


def test_sections_and_counters_come_with_the_records() -> None:
    script = Script()
    script.profiler.count("tokens", 5)
    script.train()
    with script.profiler.section("log"):
        pass
    record = script.times()
    assert record.counters == {"tokens": 5}
    assert record.parts["section.log"].num == 1
    script.profiler.flush()
    assert len(script.sink.records) == 2  # what has come since


def test_steps_that_the_loop_counts_itself_are_the_batches() -> None:
    script = Script(warm=0)
    for _ in range(4):
        for _ in range(5):
            script.train()
        script.profiler.step()
    record = script.times()
    assert record.batches == 3
    assert round(record.parts["optimizer"].total * 1e9) >= 15 * 40


def test_a_loop_without_torch_counts_its_steps() -> None:
    script = Script(warm=0)
    for _ in range(3):
        script.now += 100
        script.profiler.step()
    assert script.parts() == {"rest": 200}
    assert script.times().batches == 2


def test_an_error_within_a_step_does_not_end_the_timing() -> None:
    script = Script()
    script.loop.before_step(script.optimizer, (), {})  # raises: out of memory
    script.train()
    script.train()
    assert script.times().batches == 2


def test_while_a_trainer_of_ours_trains_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_loop, "PERIOD_NS", 0)
    script = Script()
    script.train()
    with script.profiler.driven():
        written = len(script.sink.records)
        script.loop.after_step(script.optimizer, (), {})
        assert script.loop.thread == -1
    assert len(script.sink.records) == written
    script.loop.after_step(script.optimizer, (), {})
    for _ in range(2):
        script.train()
    assert len(script.sink.records) == written + 1
    last = script.sink.records[-1]
    assert isinstance(last, StepTimes)
    assert (last.first, last.batches) == (4, 2)


def test_a_copy_of_the_process_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_loop, "os", SimpleNamespace(getpid=lambda: -7))
    script = Script(warm=0)
    monkeypatch.setattr(any_loop, "os", SimpleNamespace(getpid=lambda: -8))
    script.loop.after_step(script.optimizer, (), {})
    script.loop.close()
    assert script.loop.thread == -1
    assert script.sink.records == []


def test_equal_batches_that_are_read_at_once_have_the_parts_of_each_read_alone() -> None:
    """Of loops drawn at random, whose batches come again."""
    c = loop_calls
    data, backward = [c.ASKED, c.GOT], [c.BEGAN_BACKWARD, c.ENDED_BACKWARD]
    usual = [data, [c.CALLED], backward, [*data, c.CALLED, *backward], [*data, *data]]
    rare = [[code] for code in (*range(c.ASKED, c.ENDED_BATCH + 1), CODES["exchange"], -8)]
    for seed in range(1_000):
        draw = random.Random(seed)
        own = draw.random() < 0.2
        tape: list[int] = []
        for _ in range(3):
            drawn = [draw.choice(draw.choice((usual, usual, rare))) for _ in range(4)]
            batch = [*(code for codes in drawn for code in codes), c.BEGAN_STEP, -7]
            tape += batch * draw.randint(1, 5)
        at_once, alone = list(tape), LoopCalls(has_own_batches=own)
        LoopCalls(has_own_batches=own).read(at_once)
        read: list[int] = []
        for code in tape:
            read.append(code)
            alone.read(read)
        assert at_once == read, (seed, tape)
