"""A document that a program follows: its versions, whatever becomes of the reader."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from websocket import WebSocket, _abnf

from det_jupyter.client import Client, documents
from det_jupyter.client.documents import FollowedDocument
from det_jupyter.contract.documents.patches import Document
from det_jupyter.contract.messages import Delete
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL
from det_jupyter.errors import NotFound, UsageError
from tests.processes import DetHome
from tests.reader_pages import ReaderOfMaster
from tests.trials import LONG, slow, small_config, submit

TICK_S = 0.05


@pytest.fixture(scope="module")
def home(shared_home: DetHome) -> DetHome:
    return shared_home


@pytest.fixture(scope="module")
def client(home: DetHome) -> Iterator[Client]:
    client = home.client()
    yield client
    client.session.close()


def version_where(document: FollowedDocument, is_it: Callable[[Document], Any]) -> Document:
    """Return the first version of which a condition is true."""
    with closing(document.versions(TICK_S)) as versions:
        return next(one for one in versions if one is not None and is_it(one))


def searcher(batches: int) -> dict[str, Any]:
    return {"name": "single", "metric": "error", "max_length": {"batches": batches}}


def trains(state: Document, steps: int) -> bool:
    return any(trial["steps_completed"] >= steps for trial in state["trials"])


def test_an_experiment_is_followed_to_its_end(client: Client) -> None:
    number = submit(client, config=small_config(searcher=searcher(20))).id
    followed: list[Document] = []
    with closing(client.document("experiment", experiment_id=number).versions(TICK_S)) as versions:
        while not (followed and followed[-1]["ended_at"]):
            followed += filter(None, [next(versions)])
    assert followed[-1]["status"] == "completed"
    assert followed[-1]["trials"][0]["steps_completed"] == 20
    assert all(state["ended_at"] is None for state in followed[:-1])
    curves = client.document("curves", experiment_id=number, group="validation")
    validations = [curve for curve in client.curves(number) if curve.group == "validation"]
    assert curves.fetch()["curves"] == [curve.model_dump() for curve in validations]


def test_a_proxy_is_not_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert client.document("cluster").fetch()


def test_after_the_end_of_a_reader_or_master_it_goes_on(client: Client, home: DetHome) -> None:
    running = submit(client, config=slow(0.02, searcher=LONG))
    document = client.document("experiment", experiment_id=running.id)
    reader = ReaderOfMaster(home)
    with closing(document.versions(TICK_S)) as versions:
        for steps, end in ((1, None), (20, "reader"), (40, "master")):
            if end is not None:
                (reader.process if end == "reader" else home.master()).kill()
            assert next(one for one in versions if one is not None and trains(one, steps))
    running.kill()


def test_a_reader_that_stays_silent_is_replaced(
    client: Client, home: DetHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = submit(client, config=slow(0.02, searcher=LONG))
    document = client.document("experiment", experiment_id=running.id)
    version_where(document, lambda state: trains(state, 1))
    frozen = ReaderOfMaster(home).process
    frozen.suspend()
    with monkeypatch.context() as limits, closing(document.versions(TICK_S)) as versions:
        limits.setattr(documents, "_SILENT_S", 0.5)
        limits.setattr(documents, "_CONNECT_S", 0.2)
        while frozen.is_running():
            next(versions)
    version_where(document, lambda state: trains(state, 20))
    running.kill()


def test_other_arguments_give_another_document(client: Client) -> None:
    one, other = (submit(client, config=slow(0.01)) for _ in range(2))
    document = client.document("experiment", experiment_id=one.id)
    version_where(document, lambda state: state["id"] == one.id)
    with closing(document.versions(TICK_S)) as versions:
        next(versions)
        document.change_args(experiment_id=other.id)
        assert next(state for state in versions if state is not None and state["id"] == other.id)
    one.kill()
    other.kill()


class Sent:
    """A socket; `followed` has the ids of requests that were not left."""

    def __init__(self) -> None:
        self.followed: set[int] = set()

    def send(self, text: str) -> None:
        frame = json.loads(text)
        (self.followed.add if frame["op"] == "follow" else self.followed.discard)(frame["id"])


def test_arguments_that_change_before_the_hello_are_followed_once(client: Client) -> None:
    document = client.document("experiment", experiment_id=1)
    socket: Any = Sent()
    document._socket = socket
    document.change_args(experiment_id=2)
    document._begin(socket, {"protocol": PAGE_PROTOCOL, "instance": "one"})
    assert socket.followed == {document._number}


def test_texts_are_not_validated_in_python(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_abnf, "validate_utf8", lambda text: False)
    assert client.document("cluster").fetch()


def test_what_the_reader_has_closed_can_be_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def abort(socket: WebSocket) -> None:
        raise OSError("it is not connected")

    monkeypatch.setattr(WebSocket, "abort", abort)
    document = client.document("cluster")
    with closing(document.versions(TICK_S)) as versions:
        next(one for one in versions if one is not None)
        document.close()
        assert not list(versions)


def test_it_ends_by_close_from_another_thread(client: Client) -> None:
    number = submit(client, config=small_config(searcher=searcher(1))).id
    document = client.document("experiment", experiment_id=number)
    threading.Timer(0.3, document.close).start()
    assert not list(document.versions(tick_s=600))[10:]


def test_what_cannot_be_followed_is_an_error_of_its_class(client: Client) -> None:
    with pytest.raises(NotFound, match="999"):
        client.document("experiment", experiment_id=999).fetch()
    with pytest.raises(UsageError, match="there is no document 'news'"):
        client.document("news").fetch()
    number = submit(client, config=small_config(searcher=searcher(1))).id
    document = client.document("experiment", experiment_id=number)
    version_where(document, lambda state: state["ended_at"] is not None)
    client.change(Delete(experiment_id=number))
    with pytest.raises(NotFound, match=str(number)):
        version_where(document, lambda state: False)
