"""What a tab's frames do, and how its questions are answered."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client.answers.answering import ANSWERERS
from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.messages import Activate, Pause
from det_jupyter.errors import DetError, UsageError
from det_jupyter.reader.frames import ExperimentArgs
from det_jupyter.reader.live_document import Following
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.tab import CHANGING, READ_ONLY, Questions, Tab
from det_jupyter.view import ViewState, build_view_state
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.view.view_cluster_samples import cluster, entry, pool, reason
from tests.unit.view.view_samples import experiment, trial


class World:
    """A hub with one document, and what a tab does with them."""

    def __init__(self, answer: Any = None, problem: DetError | None = None) -> None:
        self.did: list[Any] = []
        self.said: list[Any] = []
        self._answer, self._problem = answer, problem
        own = cast(Any, self)
        self.tab = Tab(own, own, lambda frame: self.said.append(unpack(frame)), may_write=True)

    def document(self, name: str, args: Any) -> Any:
        if self._problem is not None:
            raise self._problem
        self.did.append((name, args))
        return self

    def leave(self, document: Any) -> None:
        assert document is self
        self.did.append("left")

    def add(self, following: Following) -> None:
        self.did.append(("add", following.id, following.has))
        self.following = following

    def remove(self, following: Following) -> None:
        self.did.append(("remove", following.id))

    def wake(self) -> None:
        self.did.append(("wake", self.following.is_free))

    async def answer(self, experiment_id: int, question: Any, *, may_write: bool) -> Any:
        self.did.append((experiment_id, question, may_write))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def handle(self, **frame: Any) -> None:
        self.tab.handle(json.dumps(frame))


FOLLOW = {"op": "follow", "id": 4, "document": "experiment", "args": {"experiment_id": 7}}
FOLLOWED = ("experiment", ExperimentArgs(experiment_id=7))


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ("{", "a frame cannot be read: Invalid JSON"),
        ('{"op": "dance"}', "a frame cannot be read: Input tag 'dance'"),
        ('{"op": "ack", "id": 1}', "a frame cannot be read: ack.version: Field required"),
        ("[" * 10**5, "a frame cannot be read: "),
    ],
)
def test_what_is_no_frame_is_answered_with_a_sentence(frame: str, sentence: str) -> None:
    world = World()
    world.tab.handle(frame)
    [said] = world.said
    assert (said["op"], said["id"]) == ("error", None)
    assert said["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"document": "weather"},
            "there is no document 'weather'; those are: experiments, cluster, ",
        ),
        ({"args": {"experiment_id": -1}}, "experiment: experiment_id: Input should be greater"),
        ({}, "64 experiments are open"),
    ],
)
def test_a_document_that_cannot_be_followed_is_over(changes: Any, sentence: str) -> None:
    world = World(problem=UsageError("64 experiments are open"))
    world.handle(**FOLLOW | changes)
    [said] = world.said
    assert (said["op"], said["id"]) == ("error", 4)
    assert said["error"].startswith(sentence)
    assert world.did == []
    world.handle(op="ack", id=4, version=1)
    world.handle(op="leave", id=4)
    assert world.did == [], "it was not followed"


def test_a_tab_follows_acknowledges_and_leaves() -> None:
    world = World()
    world.handle(**FOLLOW, version=3)
    assert world.did == [FOLLOWED, ("add", 4, 3)]
    world.following.send_patch(5, cast(Any, SimpleNamespace(frame=lambda **fields: "{}")))
    while world.following.is_free:
        world.following.send_whole(6, cast(Any, SimpleNamespace(frame=lambda **fields: "{}")))
    world.did.clear()
    world.handle(op="ack", id=4, version=5)
    assert world.did == [("wake", True)]
    world.did.clear()
    world.handle(**FOLLOW)  # the same number: instead of the one before
    assert world.did == [("remove", 4), "left", FOLLOWED, ("add", 4, 0)]
    world.did.clear()
    world.handle(**FOLLOW | {"id": 5})
    world.handle(op="leave", id=4)
    assert world.did[-2:] == [("remove", 4), "left"]
    world.did.clear()
    world.tab.close()
    assert world.did == [("remove", 5), "left"]


def test_a_ping_is_answered() -> None:
    world = World()
    world.handle(op="ping")
    assert world.said == [{"op": "pong"}]


ASK = {"op": "ask", "id": 9, "experiment_id": 7, "question": {"type": "logs"}}


@pytest.mark.parametrize(
    ("answer", "error", "data"),
    [
        (
            {"type": "logs", "request": 3, "error": "", "total": 2},
            "",
            {"type": "logs", "total": 2},
        ),
        ({"error": "no"}, "no", {}),
        ({"total": 2}, "", {"total": 2}),
        (ValueError("wrong"), "wrong", {}),
    ],
)
def test_a_question_is_answered_under_its_number(answer: Any, error: str, data: Any) -> None:
    world = World(answer)

    async def act() -> None:
        world.handle(**ASK)
        while not world.said:
            await asyncio.sleep(0)

    asyncio.run(act())
    [said] = world.said
    assert (said["op"], said["id"], said["data"]) == ("answer", 9, data)
    assert said["error"] == error if error == "" else error in said["error"]
    assert world.did == [(7, {"type": "logs"}, True)]


def test_what_a_closed_tab_has_asked_is_not_answered() -> None:
    world = World({})

    async def act() -> None:
        world.handle(**ASK)
        world.tab.close()
        await asyncio.sleep(0)

    asyncio.run(act())
    assert (world.said, world.did) == ([], [])


def state_of(number: int) -> ViewState:
    return build_view_state(experiment(trial(), id=number), [], [], 1000.0)


def answered(wired: Wired | DetError, *, may_write: bool = True, **question: Any) -> Any:
    def client() -> Any:
        if isinstance(wired, DetError):
            raise wired
        return wired.client

    async def act() -> Any:
        questions = Questions(cast(MasterConnection, SimpleNamespace(client=client)), state_of)
        try:
            return await questions.answer(7, question, may_write=may_write)
        finally:
            questions.close()

    return asyncio.run(act())


@pytest.mark.parametrize("kind", [*sorted(ANSWERERS), "kept"])
def test_who_may_not_write_is_answered_what_changes_nothing(kind: str) -> None:
    answer = answered(DetError("no master"), may_write=False, type=kind)
    changes = kind in ("change", "command", "profile", "register", "tensorboard")
    assert answer == {"error": READ_ONLY if changes else "no master"}
    assert kind in CHANGING or not changes


def test_a_button_does_what_is_offered_to_its_own_experiment() -> None:
    own, other = (reason().model_copy(update={"remedies": reason().remedies[n:]}) for n in (1, 2))
    queue = [entry(1, 7, reason=own), entry(2, 8, reason=other)]
    only_other = [entry(1, 7, reason=reason(remedies=[])), entry(2, 8, reason=own)]
    for entries, is_done in ((queue, True), (only_other, False)):
        wired = Wired(
            experiments=experiment(trial()),
            cluster=cluster(pool(), queue=entries),
        )
        answer = answered(wired, type="command", command=own.remedies[0].id)
        assert bool(answer["error"]) is not is_done
        posted = [path for method, path, _ in wired.asked if method == "POST"]
        assert posted == (["experiments/3/pause"] if is_done else [])


def test_buttons_act_in_the_order_in_which_they_were_pressed() -> None:
    may_pause, changed = threading.Event(), list[str]()

    def change(request: Pause | Activate) -> None:
        if isinstance(request, Pause):
            may_pause.wait()
        changed.append(type(request).__name__)

    client = SimpleNamespace(change=change, experiment=lambda number: experiment(trial()))

    async def act() -> None:
        connection = SimpleNamespace(client=lambda: client)
        questions = Questions(cast(MasterConnection, connection), state_of)
        pressed = [
            asyncio.create_task(questions.answer(7, question, may_write=True))
            for verb in ("pause", "activate")
            for question in [{"type": "command", "command": verb}]
        ]
        kept = await questions.answer(7, {"type": "kept"}, may_write=True)
        assert kept["error"] == ""  # other questions do not wait
        may_pause.set()
        await asyncio.gather(*pressed)
        questions.close()

    asyncio.run(act())
    assert changed == ["Pause", "Activate"]


def test_the_state_that_notebooks_keep_is_answered() -> None:
    answer = answered(Wired(), type="kept")
    assert answer["error"] == ""
    assert "experiment 7" in answer["kept"]["text/plain"].lower()
