"""Requests that handles send about slots, queues and life cycles."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from det_jupyter.client import Checkpoint, Client, Experiment, Trial
from det_jupyter.client.handles.reasons import next_trial
from det_jupyter.connection import Session
from det_jupyter.contract.messages import (
    PROTOCOL,
    AllocationState,
    CheckpointView,
    MasterInfo,
    SetPools,
    State,
    SwitchSlots,
    Wire,
)
from det_jupyter.errors import CheckpointError, ConfigError, Conflict, NotFound, Problem
from tests.problems import refusal, said
from tests.unit.front.verbs.cluster_samples import (
    agent,
    cluster,
    entry,
    job,
    pool,
    reason,
    slot,
)
from tests.unit.view.view_samples import allocation, checkpoint, experiment, trial

QUEUED = allocation(AllocationState.QUEUED)


class Wired:
    """A master on the wire that answers by path, and remembers what it was asked for."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, Any]] = []
        info = MasterInfo(
            url="http://127.0.0.1:1", token="t", pid=1, started_at=0.0,
            version="0", protocol=PROTOCOL, python="python", data_dir="/",
        )  # fmt: skip
        transport = httpx.MockTransport(self._answer)
        self.client = Client(Session(info, transport=transport))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().removeprefix("/api/v1/")
        if path == "master":
            return httpx.Response(200, json={})
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, path, body))
        name = path.partition("?")[0].rpartition("/")[2]
        answer = self.answers.get(name, self.answers.get("experiments"))
        return httpx.Response(200, json=_plain(answer))

    @property
    def experiment(self) -> Experiment:
        """A handle on experiment 7."""
        return Experiment(self.client, 7)


def _plain(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_plain(item) for item in answer]
    return answer.model_dump(mode="json") if isinstance(answer, Wire) else answer


@pytest.fixture
def wired() -> Wired:
    return Wired(experiments=experiment(trial()), retention=[checkpoint(10, 0.5)])


@pytest.mark.parametrize(
    ("order", "path", "body"),
    [
        (lambda e: e.set_priority(10), "resources", {"priority": 10}),
        (lambda e: e.set_weight(2), "resources", {"weight": 2.0}),
        (lambda e: e.set_max_slots(8), "resources", {"max_slots": 8}),
        (lambda e: e.set_max_slots(None), "resources", {"max_slots": "none"}),
        (lambda e: e.set_pool("night"), "resources", {"resource_pool": "night"}),
        (lambda e: e.move_ahead_of(3), "move", {"ahead_of": 3}),
        (lambda e: e.move_behind(Experiment(e._client, 3)), "move", {"behind": 3}),
        (lambda e: e.archive(), "archive", {}),
        (lambda e: e.unarchive(), "unarchive", {}),
        (lambda e: e.delete(), "delete", {}),
        (lambda e: e.continue_(), "continue", {"config": {}}),
        (lambda e: e.continue_({"max_restarts": 1}), "continue", {"config": {"max_restarts": 1}}),
    ],
)
def test_an_order_is_one_request(
    wired: Wired, order: Callable[[Experiment], None], path: str, body: dict[str, Any]
) -> None:
    order(wired.experiment)
    ((method, asked, given),) = wired.asked
    assert (method, asked) == ("POST", f"experiments/7/{path}")
    assert {key: value for key, value in (given or {}).items() if value is not None} == body


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        (lambda e: e.set_priority("high"),
         "priority: got 'high', expected a whole number from 1 to 99"),
        (lambda e: e.set_weight("x"), "weight: got 'x', expected a number above 0"),
        (lambda e: e.set_max_slots(1.5),
         "max_slots: got 1.5, expected a whole number, or none for no limit"),
        (lambda e: e.set_pool(3), "resource_pool: got 3, expected the name of a pool"),
        (lambda e: e.move_ahead_of("x"),
         "ahead_of: got 'x', expected an experiment, or its number"),
        (lambda e: e.continue_([1]), "config: got [1], expected a mapping of names to values"),
        (lambda e: e.fork(trial=1, checkpoint="u"),
         "fork: give a trial or a checkpoint, not both"),
        (lambda e: e.set_retention(save_experiment_best=-1, save_trial_best=0,
                                   save_trial_latest=0),
         "save_experiment_best: got -1, expected a whole number, 0 or more"),
    ],
)  # fmt: skip
def test_what_is_of_the_wrong_kind_is_not_asked_for(
    wired: Wired, order: Callable[[Experiment], None], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        order(wired.experiment)
    assert said(caught.value.problems) == [problem]
    assert wired.asked == []


def test_a_fork_has_its_parents_code_and_its_own_configuration(wired: Wired) -> None:
    child = wired.experiment.fork({"searcher": {"metric": "error"}}, trial=3)
    assert isinstance(child, Experiment)
    (_, (method, path, body)) = wired.asked
    assert (method, path) == ("POST", "experiments")
    assert body["parent_id"] == 7
    assert body["capsule"]["entrypoint"] == "DigitsTrial"
    assert body["config"]["searcher"] == {
        "name": "single", "metric": "error", "smaller_is_better": False, "source_trial_id": 3,
    }  # fmt: skip
    assert body["config"]["records_per_epoch"] == 1437


def test_a_fork_starts_from_one_place_only() -> None:
    parent = experiment(trial())
    parent.config["searcher"]["source_trial_id"] = 1
    wired = Wired(experiments=parent)
    found = Checkpoint(checkpoint(10, 0.5), wired.client.session.info.data_dir)  # type: ignore[arg-type]
    wired.experiment.fork(checkpoint=found)
    searcher = wired.asked[-1][2]["config"]["searcher"]
    assert searcher["source_checkpoint_uuid"] == "uuid-10"
    assert "source_trial_id" not in searcher


def test_a_fork_can_queue_though_nothing_can_run_it(wired: Wired) -> None:
    wired.experiment.fork(queue_anyway=True)
    assert wired.asked[-1][2]["queue_anyway"] is True


def checkpoints_of(*views: CheckpointView) -> Experiment:
    """Return a handle on an experiment, whose accuracy should be large, with these checkpoints."""
    wired = Wired(checkpoints=list(views))
    wired.answers["7"] = experiment(trial())
    return wired.experiment


def test_the_best_checkpoint_is_one_that_is_still_there() -> None:
    saved = [checkpoint(10, 0.5), checkpoint(20, 0.9, state="DELETED"), checkpoint(30, 0.7),
             checkpoint(40, None)]  # fmt: skip
    assert checkpoints_of(*saved).best_checkpoint().uuid == "uuid-30"


@pytest.mark.parametrize(
    ("deleted", "problem"),
    [
        ([], "experiment 7 has no checkpoint with a validation yet; a PyTorchTrial saves one when "
         "a validation is the best so far, and at the end; a function or script where it calls "
         "context.checkpoint or a trainer with a callback of det_jupyter.integrations"),
        ([10], "experiment 7: its policy (checkpoint_storage.save_*) deleted its only checkpoint "
         "with a validation; checkpoints() shows what is left"),
        ([10, 20], "experiment 7: its policy (checkpoint_storage.save_*) deleted all 2 "
         "checkpoints with a validation; checkpoints() shows what is left"),
    ],
)  # fmt: skip
def test_that_no_best_checkpoint_is_left_is_told_with_the_reason(
    deleted: list[int], problem: str
) -> None:
    gone = [checkpoint(step, 0.5, state="DELETED") for step in deleted]
    with pytest.raises(NotFound) as caught:
        checkpoints_of(*gone, checkpoint(40, None)).best_checkpoint()
    assert str(caught.value) == problem


def test_a_trainer_without_callback_is_the_reason_that_there_is_no_checkpoint() -> None:
    wired = Wired(checkpoints=[])
    wired.answers["7"] = experiment(trial(plain_trainer="keras.Model"))
    with pytest.raises(NotFound, match=r"calls keras\.Model without DetCallback, so nothing"):
        wired.experiment.best_checkpoint()
    wired.answers["checkpoints"] = [checkpoint(40, None)]  # by the Core API
    with pytest.raises(NotFound, match="has no checkpoint with a validation yet; a PyTorchTrial"):
        wired.experiment.best_checkpoint()


def test_a_deleted_checkpoint_says_who_deleted_it() -> None:
    gone, lost = checkpoints_of(
        checkpoint(10, 0.5, state="DELETED", size_bytes=42_000), checkpoint(20, 0.5)
    ).checkpoints()
    assert repr(gone) == (
        "Checkpoint uuid-10 of trial 1: batch 10, metric 0.5, 42 kB, deleted, "
        "global_batch_size=64, lr=0.05"
    )
    with pytest.raises(
        CheckpointError, match=r"uuid-10 is deleted, on request or by the policy of exp"
    ):
        gone.load()
    with pytest.raises(CheckpointError, match=r"checkpoint-20 is not there any more; its exp"):
        lost.load()


def test_what_can_never_run_is_asked_for_before_it_is_submitted() -> None:
    wired = Wired(
        possible={"problem": {"path": "a", "text": "got 5"}},
        status={"problems": ["pools.yaml: x"]},
    )
    found = wired.client.find_impossibility(5, pool="night", is_single_agent=True)
    assert found == Problem("a", "got 5")
    wired.answers["possible"] = {"problem": None}
    assert wired.client.find_impossibility(4) is None
    assert wired.client.problems() == ["pools.yaml: x"]
    assert [path for _, path, _ in wired.asked] == [
        "possible?slots=5&pool=night&is_single_agent=true",
        "possible?slots=4&pool=&is_single_agent=false",
        "status",
    ]


def test_what_a_policy_would_delete_is_told_before(wired: Wired) -> None:
    (found,) = wired.experiment.set_retention(
        save_experiment_best=0, save_trial_best=1, save_trial_latest=1, dry_run=True
    )
    assert found.uuid == "uuid-10"
    assert wired.asked[0][1:] == (
        "experiments/7/retention",
        {"save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1, "dry_run": True},
    )


def test_a_trial_says_why_it_waits() -> None:
    wired = Wired(reason=reason())
    why = Trial(wired.client, 9, experiment_of=str).why()
    assert why.cause == "slots"
    assert repr(why).splitlines()[0] == f"Trial 9: {reason().sentence}"
    assert wired.asked == [("GET", "trials/9/reason", None)]


def test_an_experiment_says_why_its_next_trial_waits() -> None:
    trials = [trial(), trial(id=2, allocation=QUEUED), trial(id=3, allocation=QUEUED)]
    wired = Wired(reason=reason(trial_id=2))
    wired.answers["7"] = experiment(*trials)
    assert wired.experiment.why().trial_id == 2
    assert wired.asked[-1][1] == "trials/2/reason"
    wired.answers["7"] = experiment()
    with pytest.raises(NotFound, match="experiment 7 has no trial yet"):
        wired.experiment.why()


def test_without_a_waiting_trial_one_that_is_not_over_tells() -> None:
    over = trial(id=1, state=State.COMPLETED, allocation=None)
    resting = trial(id=2, allocation=None, is_resting=True)
    assert next_trial([over, resting, trial(id=3)]).id == 3
    assert next_trial([over, resting]).id == 2
    assert next_trial([over]).id == 1


def test_the_cluster_is_asked_for_as_it_is_told() -> None:
    view = cluster(pool(agent(slot(0))), queue=(entry(),))
    wired = Wired(
        cluster=view,
        jobs=[job()],
        pools=view.pools,
        slots=agent(slot(0, "disabled")),
    )
    assert wired.client.cluster(limit=5) == view
    assert wired.client.jobs() == [job()]
    assert wired.client.pools() == view.pools
    assert wired.client.agents() == view.pools[0].agents
    wired.client.change(SetPools(pools=[{"pool_name": "a"}]))
    switched = wired.client.change(SwitchSlots(agent_id="a/..b", slots=[0], enabled=False))
    assert switched.slots[0].state == "disabled"
    assert [(method, path) for method, path, _ in wired.asked] == [
        ("GET", "cluster?limit=5"), ("GET", "jobs"), ("GET", "cluster?limit=0"),
        ("GET", "cluster?limit=0"), ("PUT", "pools"), ("POST", "agents/a%2F%2E%2Eb/slots"),
    ]  # fmt: skip


def test_a_refusal_is_the_masters_word() -> None:
    body = refusal("Conflict", "Experiment is not in terminal state.")
    info = Wired().client.session.info
    transport = httpx.MockTransport(
        lambda r: httpx.Response(200, json={}) if r.method == "GET"
        else httpx.Response(409, json=body)
    )  # fmt: skip
    with pytest.raises(Conflict, match="not in terminal state"):
        Experiment(Client(Session(info, transport=transport)), 7).archive()
