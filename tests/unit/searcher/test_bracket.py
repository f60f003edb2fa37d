"""Promotion compared with a plain model of its rules, on sorted lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.config import Length
from det_jupyter.searcher import Action, Close, Create, ExitReason, TrainTo
from tests.unit.searcher.searcher_world import World, make_config

WORST = float("inf")


@dataclass
class PlainResult:
    metric: float
    trial: int
    is_promoted: bool = False


@dataclass
class PlainAsha:
    """A plain model that returns "create", ("train", trial, rung) and ("close", trial)."""

    num_rungs: int
    divisor: float
    max_trials: int
    concurrent: int
    rungs: list[list[PlainResult]] = field(default_factory=list)
    outstanding: list[int] = field(default_factory=list)
    rung_of: list[int] = field(default_factory=list)
    left: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    num_invalid: int = 0
    said: list[Any] = field(default_factory=list)

    def start(self) -> None:
        self.rungs = [[] for _ in range(self.num_rungs)]
        self.outstanding = [0] * self.num_rungs
        for _ in range(min(self.concurrent, self.max_trials)):
            self.create()

    def create(self) -> None:
        self.said += ["create", ("train", len(self.rung_of), 0)]
        self.rung_of.append(0)
        self.outstanding[0] += 1

    def on_result(self, trial: int, metric: float) -> None:
        before = sum(said[0] == "train" for said in self.said)
        self.enter(trial, metric)
        has_trained = sum(said[0] == "train" for said in self.said) > before
        if not has_trained and len(self.rung_of) - self.num_invalid < self.max_trials:
            self.create()
        self.close_those_without_hope()

    def enter(self, trial: int, metric: float) -> None:
        place = self.rung_of[trial]
        self.outstanding[place] -= 1
        rung = self.rungs[place]
        old, new = int(len(rung) / self.divisor), int((len(rung) + 1) / self.divisor)
        position = sum(result.metric <= metric for result in rung)
        rung.insert(position, PlainResult(metric, trial))
        if place == self.num_rungs - 1:
            self.close(trial)
        elif position < new:
            self.promote(rung[position], place)
        elif new != old and not rung[old].is_promoted:
            self.promote(rung[old], place)

    def promote(self, result: PlainResult, place: int) -> None:
        if result.trial in self.closed:
            return
        result.is_promoted = True
        self.rung_of[result.trial] = place + 1
        self.outstanding[place + 1] += 1
        if result.trial in self.left:
            self.enter(result.trial, WORST)
        else:
            self.said.append(("train", result.trial, place + 1))

    def on_left(self, trial: int) -> None:
        self.left.add(trial)
        self.on_result(trial, WORST)

    def on_invalid(self, trial: int) -> None:
        self.left.add(trial)
        self.outstanding[self.rung_of[trial]] -= 1
        self.num_invalid += 1
        for rung in self.rungs:
            rung[:] = [result for result in rung if result.trial != trial]
        self.create()
        self.close_those_without_hope()

    def close(self, trial: int) -> None:
        if trial not in self.left and trial not in self.closed:
            self.closed.add(trial)
            self.said.append(("close", trial))

    def close_those_without_hope(self) -> None:
        if len(self.rungs[0]) < self.max_trials:
            return
        for rung, outstanding in zip(self.rungs, self.outstanding, strict=True):
            if outstanding:
                return
            for result in rung:
                if not result.is_promoted:
                    self.close(result.trial)


def plainly(actions: list[Action], lengths: list[int]) -> list[Any]:
    """Return the actions in the words of PlainAsha; closings sorted, their order is nothing."""
    said: list[Any] = []
    for action in actions:
        match action:
            case Create():
                said.append("create")
            case TrainTo(index, Length(amount=amount)):
                said.append(("train", index, lengths.index(amount)))
            case Close(index):
                said.append(("close", index))
    return in_order(said)


def in_order(said: list[Any]) -> list[Any]:
    """Return the actions, with the closings sorted and last."""
    closings = sorted(words for words in said if words[0] == "close")
    return [words for words in said if words[0] != "close"] + closings


@settings(max_examples=40)
@given(
    data=st.data(),
    num_rungs=st.integers(1, 4),
    divisor=st.sampled_from([1.5, 2, 3, 4]),
    max_trials=st.integers(1, 30),
    concurrent=st.integers(1, 6),
)
def test_promotion_does_what_its_rules_say(
    data: st.DataObject, num_rungs: int, divisor: float, max_trials: int, concurrent: int
) -> None:
    world = World(
        make_config(
            name="async_halving",
            num_rungs=num_rungs,
            divisor=divisor,
            max_trials=max_trials,
            max_concurrent_trials=concurrent,
            max_length={"batches": 10_000},
        )
    )
    lengths = [int(rung.length["batches"]) for rung in world.search.view().brackets[0].rungs]
    plain = PlainAsha(num_rungs, divisor, max_trials, concurrent)
    plain.start()
    assert plainly(world.log, lengths) == in_order(plain.said)
    while world.targets:
        plain.said = []
        index = data.draw(st.sampled_from(sorted(world.targets)))
        event = data.draw(st.sampled_from(["result"] * 8 + ["left", "invalid"]))
        if event == "invalid" and plain.num_invalid < 10:
            actions = world.exit(index, ExitReason.INVALID_HP)
            plain.on_invalid(index)
        elif event == "left":
            actions = world.exit(index, ExitReason.ERRORED)
            plain.on_left(index)
        else:
            metric = data.draw(st.integers(0, 9))
            actions = world.reach(index, metric)
            plain.on_result(index, metric)
        assert plainly(actions, lengths) == in_order(plain.said)
