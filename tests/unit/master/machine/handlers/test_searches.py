"""A search creates several trials, extends, rests and closes them.

The search is a fake whose actions the test sets; `searcher/` has its own tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    Cancel,
    ChangeSearch,
    CloseRun,
    ExtendGang,
    Kill,
    KillGang,
    KillTrial,
    Pause,
    SearchChange,
    SearchChangeView,
    SearchView,
    SignalGang,
    StartGang,
    State,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.commands import Command, ConsultSampler
from det_jupyter.master.machine.model.events import HparamsSampled, TrialJudged, ValidationReported
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.searcher import (
    Action,
    AskPruner,
    AskSampler,
    Close,
    Create,
    ExitReason,
    Shutdown,
    TrainTo,
)
from det_jupyter.searcher.searcher_section import SearcherSection
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import (
    World,
    ended,
    exited,
    failed,
    reached,
    registered,
    running,
    saved,
    submitted,
    validated,
)


def create(index: int) -> Create:
    return Create(index, {"lr": 0.1 * (index + 1)}, seed=100 + index)


def to(index: int, batches: int, *, is_last: bool = False) -> TrainTo:
    return TrainTo(index, Length("batches", batches), is_last)


class Scripted:
    """A fake search of two trials: it records its calls, and takes its actions from `answers`."""

    first: list[Action] = [create(0), to(0, 10), create(1), to(1, 10)]
    answers: dict[str, list[Action]] = {}
    time_metric = None
    progress = 0.25

    def __init__(
        self,
        searcher: SearcherSection,
        hyperparameters: Mapping[str, Any],
        seed: int,
        snapshot: Mapping[str, Any] | None,
    ) -> None:
        self.seen: list[str] = list(snapshot["seen"]) if snapshot else []

    def _note(self, what: str) -> list[Action]:
        self.seen.append(what)
        return self.answers.get(what, [])

    def start(self) -> list[Action]:
        self._note("start")
        return self.first

    def on_target_reached(self, index: int, metric: float | None) -> list[Action]:
        return self._note(f"{index} reached {metric}")

    def on_report(self, index: int, time: float | None, metric: float | None) -> list[Action]:
        return self._note(f"{index} reported {metric} at {time}")

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        return self._note(f"{index} {reason}")

    def on_sampled(self, index: int, hparams: dict[str, Any]) -> list[Action]:
        return self._note(f"{index} sampled {hparams}")

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        return self._note(f"{index} judged {is_pruned}")

    def change(self, new: SearchChange) -> list[Action]:
        if new.max_trials == 0:
            raise ConfigError(["searcher.max_trials: got 0, expected at least 1"])
        return self._note(f"more {new.max_trials}")

    def snapshot(self) -> dict[str, Any]:
        return {"seen": list(self.seen)}

    def pending(self) -> list[Action]:
        return [AskSampler(2)] if "asks" in self.seen else []

    def view(self) -> SearchView:
        return SearchView(name="scripted", max_trials=2, num_created=2, divisor=3)

    def bracket_of(self, index: int) -> int | None:
        return 0

    def rung_metrics(self, index: int) -> list[float | None]:
        return [0.5] if any(f"{index} reached" in line for line in self.seen) else []

    def was_stopped(self, index: int) -> bool:
        return True


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Action]]:
    """Return the actions of the search, by the call."""
    answers: dict[str, list[Action]] = {}
    monkeypatch.setattr("det_jupyter.master.machine.model.turn.Search", Scripted)
    monkeypatch.setattr(Scripted, "answers", answers)
    return answers


@pytest.fixture
def world(answers: dict[str, list[Action]]) -> Iterator[World]:
    """Return a machine with 2 slots and an experiment of two trials of one slot, both running."""
    world = World()
    world.tell(registered(slots=2), submitted(slots=1))
    world.tell(*running("1.1.1", ranks=1), *running("1.2.1", ranks=1))
    yield world
    check_machine(world.machine)


def seen(world: World) -> list[str]:
    """Return the calls of the search since it started its trials."""
    search = world.machine.searches.of(world.experiment())
    assert isinstance(search, Scripted)
    return search.seen[1:]


def preempt(allocation_id: str = "1.1.1") -> SignalGang:
    return SignalGang(allocation_id=allocation_id, signal="preempt", timeout_s=3600.0)


def targets(commands: list[Command]) -> list[dict[str, int]]:
    started = [getattr(command, "command", None) for command in commands]
    return [c.plan.target.to_document() for c in started if isinstance(c, StartGang)]


# Trials are created and trained to a target


def test_trials_have_what_the_search_gave_them(world: World) -> None:
    assert [world.trial(i).hparams for i in (1, 2)] == [{"lr": 0.1}, {"lr": 0.2}]
    assert [world.trial(i).seed for i in (1, 2)] == [100, 101]
    assert [world.trial(i).index for i in (1, 2)] == [0, 1]


def test_the_plan_of_a_run_says_how_far_to_train(answers: dict[str, list[Action]]) -> None:
    world = World()
    world.tell(registered(slots=2))
    assert targets(world.tell(submitted(slots=1))) == [{"batches": 10}, {"batches": 10}]


def test_a_promoted_trial_goes_on_in_its_slots(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reached 0.5"] = [to(0, 30)]
    world.tell(validated(10, 0.5), saved(10))
    extend = ExtendGang(allocation_id="1.1.1", target=Length("batches", 30), target_is_last=False)
    assert world.tell(reached(10)) == [world.order(extend)]
    assert world.allocation_state() is AllocationState.RUNNING
    assert world.trial().rung_metrics == [0.5]


def test_a_trial_without_an_answer_rests_and_gives_its_slots_back(world: World) -> None:
    world.tell(validated(10, 0.5), saved(10))
    assert world.tell(reached(10)) == [world.order(preempt())]
    assert world.trial().is_resting
    assert world.waiting_for() == (
        "rests at 10 batches and holds no slots; goes on if it is among the best 1 of 3 there"
    )
    world.tell(ended("preempted", 10), exited(codes={0: 0}))
    assert world.trial().state is State.ACTIVE
    assert world.allocation_state() is AllocationState.ENDED
    assert world.experiment().state is State.ACTIVE


def test_a_resting_trial_that_is_promoted_goes_on_from_its_checkpoint(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 reached 0.4"] = [to(0, 30, is_last=True)]
    world.tell(saved(10), reached(10), exited(codes={0: 0}))
    world.tell(validated(10, 0.4, "1.2.1"))
    commands = world.tell(reached(10, "1.2.1"))
    assert targets(commands) == [{"batches": 30}]
    assert world.allocation(1).starts_from == world.trial(1).latest_checkpoint
    assert world.trial(1).latest_checkpoint is not None
    assert not world.trial(1).is_resting
    assert world.waiting_for(1) is None


def test_a_trial_that_is_promoted_while_it_leaves_queues_when_it_has_left(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 reached None"] = [to(0, 30)]
    world.tell(saved(10), reached(10), reached(10, "1.2.1"))
    assert world.allocation_state(1) is AllocationState.STOPPING
    assert targets(world.tell(exited(codes={0: 0}))) == [{"batches": 30}]


def test_a_resting_trial_s_ranks_may_fail_on_their_way_out(world: World) -> None:
    world.tell(saved(10), reached(10), failed(), exited(codes={0: 1}, first_failed=0))
    assert world.trial().state is State.ACTIVE
    assert world.trial().restarts == 0


def test_a_target_that_is_told_twice_is_judged_once(world: World) -> None:
    world.tell(reached(10))
    assert world.tell(reached(10)) == []
    assert seen(world) == ["0 reached None"]


def test_a_target_that_was_moved_meanwhile_is_not_reached(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 reached None"] = [to(0, 30)]
    world.tell(reached(10, "1.2.1"), reached(10))
    assert seen(world) == ["1 reached None"]
    world.tell(ended("completed", 10))  # its last target was 10
    assert targets(world.tell(exited(codes={0: 0}))) == [{"batches": 30}]


def test_the_last_target_ends_a_trial_without_a_word(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reached None"] = [to(0, 100, is_last=True)]
    answers["0 reached 0.3"] = [Close(0)]
    world.tell(reached(10), validated(100, 0.3))
    assert world.tell(reached(100)) == []
    assert world.trial().state is State.STOPPING_COMPLETED
    world.tell(ended("completed"), exited(codes={0: 0}))
    assert world.trial().state is State.COMPLETED
    assert seen(world)[-1] == "0 completed"


def test_an_agent_that_comes_back_is_told_the_farthest_target(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reached None"] = [to(0, 30)]
    world.tell(reached(10))
    extend = ExtendGang(allocation_id="1.1.1", target=Length("batches", 30), target_is_last=False)
    back = registered(slots=2, runs={"1.1.1": True, "1.2.1": True})
    assert world.tell(back) == [world.order(extend)]


# Closing


def test_a_trial_that_the_search_closes_leaves_and_is_completed(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported 2.0 at None"] = [Close(0)]
    assert world.tell(validated(10, 2.0)) == [world.order(preempt())]
    assert world.trial(1).state is State.STOPPING_COMPLETED
    world.tell(ended("preempted", 10))
    assert world.tell(exited(codes={0: 0})) == [world.order(CloseRun(allocation_id="1.1.1"))]
    assert world.trial(1).state is State.COMPLETED
    assert world.trial(1).was_stopped
    assert world.experiment().state is State.ACTIVE
    assert seen(world)[-1] == "0 completed"


def test_a_resting_trial_that_is_closed_ends_at_once(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 reached None"] = [Close(0), Close(1), Shutdown()]
    world.tell(reached(10), exited(codes={0: 0}))
    assert world.tell(reached(10, "1.2.1")) == [world.order(preempt("1.2.1"))]
    assert world.trial(1).state is State.COMPLETED
    world.tell(exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.COMPLETED


def test_a_waiting_trial_that_is_closed_ends_at_once(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported 20.0 at None"] = [Close(0), Close(1)]
    world.tell(registered(slots=1, runs={"1.1.1": True}))
    assert world.allocation_state(2) is AllocationState.QUEUED
    assert world.tell(validated(20, 20.0)) == [world.order(preempt())]
    assert world.trial(2).state is State.COMPLETED


def test_the_time_metric_is_shown_to_the_search(world: World) -> None:
    world.tell(ValidationReported(allocation_id="1.1.1", steps_completed=5, metric=0.1, time=2.0))
    assert seen(world) == ["0 reported 0.1 at 2.0"]


def test_a_validation_without_a_number_is_shown_as_none(world: World) -> None:
    world.tell(validated(10, None), reached(10))
    assert seen(world) == ["0 reported None at None", "0 reached None"]


def test_a_validation_on_the_way_out_is_noted_and_not_judged(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported 2.0 at None"] = [Close(0)]
    world.tell(validated(10, 2.0))
    assert world.tell(validated(20, 20.0)) == []
    assert world.trial(1).latest_metric == 20.0
    assert len(seen(world)) == 1


# Ends


def test_a_trial_promoted_as_it_leaves_is_not_charged_for_failing_there(
    answers: dict[str, list[Action]],
) -> None:
    world = World()
    world.tell(registered(slots=2), submitted(slots=1, max_restarts=0))
    world.tell(*running("1.1.1", ranks=1), *running("1.2.1", ranks=1))
    answers["1 reached None"] = [to(0, 30)]
    world.tell(saved(10), reached(10), reached(10, "1.2.1"), failed())
    assert targets(world.tell(exited(codes={0: 1}, first_failed=0))) == [{"batches": 30}]
    assert world.trial(1).restarts == 0


def test_a_metric_that_is_not_finite_is_never_the_best(world: World) -> None:
    world.tell(validated(5, -math.inf), validated(10, 0.5))
    assert world.trial(1).best_metric == world.experiment().best_metric == 0.5


def test_an_experiment_whose_trials_were_all_killed_is_canceled(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 canceled"] = [Shutdown()]
    world.tell(KillTrial(trial_id=1), exited(codes={0: -9}, killed=True))
    world.tell(KillTrial(trial_id=2), exited("1.2.1", codes={0: -9}, killed=True))
    assert world.experiment().state is State.CANCELED


def test_the_experiment_ends_with_its_last_trial(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 stopped"] = [Shutdown()]
    world.tell(ended("stopped"), exited(codes={0: 0}))
    assert world.experiment().state is State.ACTIVE
    world.tell(ended("stopped", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().searcher is None  # it is discarded


def test_one_failed_trial_does_not_fail_the_experiment(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 stopped"] = [Shutdown()]
    world.tell(failed(final=True), exited(codes={0: 1}, first_failed=0))
    world.tell(ended("stopped", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert seen_states(world) == [State.ERROR, State.COMPLETED]
    assert world.experiment().state is State.COMPLETED
    assert world.experiment().message == "trial 1: ValueError: no"


def seen_states(world: World) -> list[State]:
    return [world.trial(i).state for i in (1, 2)]


def test_an_experiment_fails_when_all_its_trials_have(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 errored"] = [Shutdown()]
    for id in ("1.1.1", "1.2.1"):
        world.tell(failed(f"ValueError: {id}", final=True, allocation_id=id))
        world.tell(exited(id, codes={0: 1}, first_failed=0))
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == "all 2 trials failed; trial 1: ValueError: 1.1.1"


def test_after_the_search_has_shut_down_its_trials_go_on_to_their_end(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported -1.0 at None"] = [Shutdown()]
    world.tell(validated(10, -1.0))
    assert world.experiment().state is State.STOPPING_COMPLETED
    world.tell(ended("stopped"), exited(codes={0: 0}))
    assert world.experiment().state is State.STOPPING_COMPLETED
    world.tell(ended("stopped", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.COMPLETED


# Requests of users meanwhile


def test_a_resting_trial_stays_at_rest_when_its_experiment_is_activated(world: World) -> None:
    world.tell(reached(10), exited(codes={0: 0}), Pause(experiment_id=1))
    assert seen_states(world) == [State.PAUSED, State.PAUSING]
    assert world.experiment().state is State.PAUSING
    world.tell(exited("1.2.1", codes={0: 0}))
    assert seen_states(world) == [State.PAUSED, State.PAUSED]
    assert world.experiment().state is State.PAUSED
    assert len(targets(world.tell(Activate(experiment_id=1)))) == 1
    assert world.allocation(2).id == "1.2.2"
    assert world.trial(1).is_resting


def test_a_trial_promoted_in_a_pause_starts_when_it_is_activated(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 reached None"] = [to(0, 30), create(2), to(2, 10)]
    world.tell(reached(10), exited(codes={0: 0}), Pause(experiment_id=1))
    assert world.tell(reached(10, "1.2.1")) == [world.order(preempt("1.2.1"))]
    assert world.trial(3).state is State.PAUSED
    world.tell(exited("1.2.1", codes={0: 0}))
    assert targets(world.tell(Activate(experiment_id=1))) == [
        {"batches": 30},
        {"batches": 10},
    ]


def test_pausing_leaves_a_closed_trial_to_its_end(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported 2.0 at None"] = [Close(0)]
    world.tell(validated(10, 2.0))
    assert world.tell(Pause(experiment_id=1)) == [world.order(preempt("1.2.1"))]
    assert world.trial(1).state is State.STOPPING_COMPLETED
    world.tell(exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.PAUSING  # the closed one still holds slots
    world.tell(exited(codes={0: 0}))
    assert world.experiment().state is State.PAUSED
    world.tell(Activate(experiment_id=1))
    assert seen_states(world) == [State.COMPLETED, State.ACTIVE]


def test_a_canceled_search_is_not_asked_any_more(world: World) -> None:
    world.tell(Cancel(experiment_id=1))
    world.tell(exited(codes={0: 0}), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.CANCELED
    assert world.experiment().searcher is None


def test_one_killed_trial_is_told_to_the_search_which_goes_on(world: World) -> None:
    assert world.tell(KillTrial(trial_id=1)) == [
        world.order(KillGang(allocation_id="1.1.1", gives_up_uploads=True))
    ]
    world.tell(exited(codes={0: -9}, killed=True))
    assert seen_states(world) == [State.CANCELED, State.ACTIVE]
    assert seen(world) == ["0 canceled"]
    assert world.tell(KillTrial(trial_id=1)) == []
    with pytest.raises(NotFound, match="there is no trial 9"):
        world.tell(KillTrial(trial_id=9))


def test_a_closing_trial_can_still_be_killed(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported 2.0 at None"] = [Close(0)]
    world.tell(validated(10, 2.0))
    assert world.tell(Kill(experiment_id=1)) == [
        world.order(KillGang(allocation_id="1.1.1", gives_up_uploads=True)),
        world.order(KillGang(allocation_id="1.2.1", gives_up_uploads=True)),
    ]
    world.tell(exited(codes={0: -9}, killed=True))
    world.tell(exited("1.2.1", codes={0: -9}, killed=True))
    assert world.experiment().state is State.CANCELED


# Changes of the search, samplers, restarts


def test_a_running_search_is_changed_and_the_configuration_says_so(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["more 5"] = [create(2), to(2, 10)]
    world.tell(ChangeSearch(experiment_id=1, max_trials=5))
    assert world.experiment().config["searcher"]["max_trials"] == 5
    assert world.allocation_state(3) is AllocationState.QUEUED


def test_hyperparameters_that_a_change_does_not_name_stay_as_they_are(world: World) -> None:
    before = world.experiment().config["hyperparameters"]
    narrower = {"type": "double", "minval": 0.1, "maxval": 0.2}
    world.tell(ChangeSearch(experiment_id=1, hyperparameters={"lr": narrower}))
    assert world.experiment().config["hyperparameters"] == before | {"lr": narrower}


def test_a_change_that_is_refused_changes_nothing(world: World) -> None:
    before = world.machine.dump()
    with pytest.raises(ConfigError, match="max_trials: got 0"):
        world.tell(ChangeSearch(experiment_id=1, max_trials=0))
    assert world.machine.dump() == before


def test_a_search_that_is_over_cannot_be_changed(world: World) -> None:
    world.tell(Kill(experiment_id=1))
    with pytest.raises(Conflict, match="its search is over"):
        world.tell(ChangeSearch(experiment_id=1, max_trials=5))


def test_a_sampler_s_answer_makes_the_trial_it_was_asked_for(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 stopped"] = [AskSampler(2)]
    answers["2 sampled {'lr': 9.0}"] = [create(2), to(2, 10)]
    world.tell(ended("stopped"))
    assert world.tell(exited(codes={0: 0}))[-1] == ConsultSampler(
        experiment_id=1, index=2, question="sample", cause=world.machine.state.seq
    )
    world.tell(HparamsSampled(experiment_id=1, index=2, hparams={"lr": 9.0}))
    assert world.trial(3).index == 2


def test_a_sampler_that_fails_ends_the_experiment_with_its_error(world: World) -> None:
    world.tell(HparamsSampled(experiment_id=1, index=2, error="ValueError: no such thing"))
    world.tell(exited(codes={0: 0}), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.ERROR
    assert world.experiment().message == "searcher.sampler: ValueError: no such thing"
    assert seen_states(world) == [State.CANCELED, State.CANCELED]


def test_what_a_failed_sampler_leaves_running_can_be_killed(world: World) -> None:
    world.tell(HparamsSampled(experiment_id=1, index=2, error="ValueError: no such thing"))
    assert world.tell(Kill(experiment_id=1)) == [
        world.order(KillGang(allocation_id="1.1.1", gives_up_uploads=True)),
        world.order(KillGang(allocation_id="1.2.1", gives_up_uploads=True)),
    ]
    world.tell(exited(codes={0: -9}, killed=True), exited("1.2.1", codes={0: -9}, killed=True))
    assert world.experiment().state is State.ERROR


def test_a_pruner_s_answer_reaches_the_search(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["0 reported 0.5 at None"] = [AskPruner(0)]
    answers["0 judged True"] = [Close(0)]
    assert world.tell(validated(5, 0.5)) == [
        ConsultSampler(experiment_id=1, index=0, question="judge", cause=world.machine.state.seq)
    ]
    assert world.tell(TrialJudged(experiment_id=1, index=0, is_pruned=True)) == [
        world.order(preempt())
    ]


@pytest.mark.parametrize("is_over", [False, True])
def test_an_answer_that_comes_too_late_changes_nothing(world: World, is_over: bool) -> None:
    world.tell(Kill(experiment_id=1))
    if is_over:
        world.tell(exited(codes={0: 0}), exited("1.2.1", codes={0: 0}))
    assert world.tell(HparamsSampled(experiment_id=1, index=2, hparams={"lr": 9.0})) == []
    assert world.tell(TrialJudged(experiment_id=1, index=0, is_pruned=True)) == []


def test_a_search_goes_on_after_a_restart_of_the_master(
    world: World, answers: dict[str, list[Action]]
) -> None:
    answers["1 stopped"] = [Shutdown()]
    world.tell(ended("stopped"), exited(codes={0: 0}))
    world.machine = Machine(MachineState.model_validate_json(world.machine.dump()))
    assert seen(world) == ["0 stopped"]
    world.tell(ended("stopped", allocation_id="1.2.1"), exited("1.2.1", codes={0: 0}))
    assert world.experiment().state is State.COMPLETED


def test_questions_without_an_answer_are_asked_again_after_a_restart(world: World) -> None:
    search = world.machine.searches.of(world.experiment())
    assert isinstance(search, Scripted)
    search.seen.append("asks")
    machine = Machine(MachineState.model_validate_json(world.machine.dump()))
    (question,) = machine.pending_questions()
    assert isinstance(question, ConsultSampler)
    assert (question.experiment_id, question.index) == (1, 2)


# Continuing another trial


def test_a_trial_that_continues_another_has_its_seed_and_begins_at_its_checkpoint(
    world: World,
) -> None:
    world.tell(saved(10), Kill(experiment_id=1))
    world.tell(exited(codes={0: 0}), exited("1.2.1", codes={0: 0}))
    event = submitted(slots=1).model_copy(update={"continues": 1})
    world.tell(event)
    assert world.trial(3).seed == world.trial(1).seed
    assert world.allocation(3).starts_from == world.trial(1).latest_checkpoint


def test_a_trial_without_a_checkpoint_cannot_be_continued(world: World) -> None:
    with pytest.raises(ConfigError, match="trial 2 has no checkpoint to begin with"):
        world.tell(submitted(slots=1).model_copy(update={"continues": 2}))


def test_trials_may_begin_with_another_trial_s_weights(world: World) -> None:
    world.tell(saved(10))
    searcher = {"name": "single", "metric": "error", "max_length": {"batches": 9}}
    world.tell(submitted(slots=1, searcher=searcher | {"source_trial_id": 1}))
    world.tell(submitted(slots=1, searcher=searcher | {"source_checkpoint_uuid": "ckpt10"}))
    source = world.trial(1).latest_checkpoint
    assert (world.trial(3).warm_start, world.trial(4).warm_start) == (source, source)
    assert world.trial(3).latest_checkpoint is None
    for wrong, problem in (
        ({"source_trial_id": 99}, "searcher.source_trial_id: there is no trial 99"),
        ({"source_trial_id": 2}, "searcher.source_trial_id: trial 2 has no checkpoint"),
        ({"source_checkpoint_uuid": "x"}, "there is no checkpoint 'x'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            world.tell(submitted(slots=1, searcher=searcher | wrong))


RANDOM = {"name": "random", "metric": "error", "max_trials": 2, "max_length": {"batches": 100}}


def world_with_experiment() -> World:
    world = World()
    world.tell(registered(slots=1), submitted(slots=1, searcher=RANDOM))
    return world


def test_changes_of_a_search_are_kept_with_the_values_before() -> None:
    world = world_with_experiment()
    world.tell(ChangeSearch(experiment_id=1, max_trials=4))
    first = world.now
    world.tell(
        ChangeSearch(
            experiment_id=1, max_trials=6, max_length=Length("batches", 200),
        )
    )  # fmt: skip
    kept = world.experiment().search_changes
    assert kept == [
        SearchChangeView(at=first, before={"max_trials": 2}, after={"max_trials": 4}),
        SearchChangeView(
            at=world.now,
            before={"max_trials": 4, "max_length": {"batches": 100}},
            after={"max_trials": 6, "max_length": {"batches": 200}},
        ),
    ]
    restored = MachineState.model_validate_json(world.machine.state.model_dump_json())
    assert restored.experiments[1].search_changes == kept


def test_a_change_that_is_refused_is_not_in_the_history() -> None:
    world = world_with_experiment()
    with pytest.raises((ConfigError, Conflict)):
        world.tell(ChangeSearch(experiment_id=1, max_trials=0))
    assert world.experiment().search_changes == []


def test_the_history_has_a_bound() -> None:
    world = world_with_experiment()
    for number in range(102):
        world.tell(ChangeSearch(experiment_id=1, max_concurrent_trials=number % 2 + 1))
    kept = world.experiment().search_changes
    assert len(kept) == 100
    assert kept[-1].after == {"max_concurrent_trials": 2}
