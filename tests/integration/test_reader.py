"""The reader of a real master with real trials: what a page gets, whatever becomes of either."""

from __future__ import annotations

import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
from tornado.web import RequestHandler
from websocket import (
    WebSocketBadStatusException,
    WebSocketConnectionClosedException,
    create_connection,
)

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import Delete
from det_jupyter.contract.messages.pages import MOST_UNACKED, PAGE_PROTOCOL
from det_jupyter.errors import NotFound
from det_jupyter.reader.server import ReaderState, make_application
from tests.processes import DetHome
from tests.reader_pages import Page, ReaderOfMaster
from tests.trials import LONG, Gate, slow, small_config, submit, wait_for_steps

ONE_SLOT = {"slots_per_trial": 1}


@pytest.fixture(scope="module")
def home(shared_home: DetHome) -> DetHome:
    return shared_home


@pytest.fixture(scope="module")
def client(home: DetHome) -> Iterator[Client]:
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="module")
def reader(client: Client, home: DetHome) -> ReaderOfMaster:
    return ReaderOfMaster(home)


@pytest.fixture
def page(reader: ReaderOfMaster) -> Iterator[Page]:
    with reader.page() as page:
        yield page


def quick(**changes: Any) -> dict[str, Any]:
    """Return the configuration of a trial that is soon over."""
    length = {"name": "single", "metric": "error", "max_length": {"batches": 4}}
    return small_config(**{"searcher": length, "resources": ONE_SLOT, **changes})


@pytest.fixture(scope="module")
def done(client: Client) -> Experiment:
    """Return an experiment that is completed, and that no test changes."""
    experiment = submit(client, quick())
    experiment.wait()
    return experiment


def lines_of(page: Page, number: int = 1) -> dict[int, dict[str, Any]]:
    """Return the lines of the list; none before its first version."""
    rows = page.documents.get(number, {"rows": {}})["rows"]
    return {int(name): line for name, line in rows.items()}


def test_the_first_frame_says_who_speaks(page: Page) -> None:
    assert page.hello["op"] == "hello"
    assert page.hello["protocol"] == PAGE_PROTOCOL
    assert page.hello["master"]["state"] == "running"
    assert page.hello["instance"]
    page.send(op="ping")
    page.until(lambda: page.num_pongs)


@pytest.mark.parametrize("header", ["", "Authorization: Bearer wrong", "Authorization: secret"])
def test_without_the_token_a_socket_is_refused(reader: ReaderOfMaster, header: str) -> None:
    url = f"ws://127.0.0.1:{reader.port}/socket"
    with pytest.raises(WebSocketBadStatusException, match="403"):
        create_connection(url, header=[header] if header else [], suppress_origin=True)


def test_no_route_is_served_without_the_token(reader: ReaderOfMaster) -> None:
    """By the application's own routes, with every verb."""
    application = make_application(cast(ReaderState, None))
    rules = [rule for router in application.default_router.rules for rule in router.target.rules]
    paths = [rule.matcher._path for rule in rules]
    assert paths == ["/socket"]
    with httpx.Client(base_url=f"http://127.0.0.1:{reader.port}", trust_env=False) as http:
        for verb in RequestHandler.SUPPORTED_METHODS:
            for path, status in ((paths[0], 403), ("/", 404), ("/socket/x", 404)):
                answer = http.request(verb, path)
                assert (answer.status_code, answer.content) == (status, b""), (verb, path)


def test_a_browser_is_refused_though_it_had_the_token(reader: ReaderOfMaster) -> None:
    with pytest.raises(WebSocketBadStatusException, match="403"):
        create_connection(f"ws://127.0.0.1:{reader.port}/socket", origin="http://evil.example",
                          header=[f"Authorization: Bearer {reader.token}"])  # fmt: skip


@contextmanager
def crowd_at(reader: ReaderOfMaster, size: int) -> Iterator[list[socket.socket]]:
    """Connect so often, and send a part of a request."""
    crowd: list[socket.socket] = []
    try:
        for _ in range(size):
            crowd.append(socket.create_connection(("127.0.0.1", reader.port)))
            crowd[-1].send(b"GET /socket HTTP/1.1\r\nHost: x\r\n")
        yield crowd
    finally:
        for one in crowd:
            one.close()


def test_half_open_connections_of_others_do_not_fill_the_reader(
    reader: ReaderOfMaster, page: Page
) -> None:
    process = psutil.Process(reader.process.pid)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (400, 400))
    with crowd_at(reader, 500):
        assert process.num_fds() < 400
        with reader.page() as newcomer:
            assert newcomer.hello["op"] == "hello"
        page.send(op="ping")  # one that was there before is still served
        page.until(lambda: page.num_pongs)


def test_without_a_file_for_another_connection_the_reader_pauses(
    reader: ReaderOfMaster, page: Page
) -> None:
    process = psutil.Process(reader.process.pid)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds(), 400))
    with crowd_at(reader, 1):
        cpu_s = sum(process.cpu_times()[:2])
        page.drain(1.5)
        assert sum(process.cpu_times()[:2]) - cpu_s < 0.75  # it does not try again and again
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (400, 400))
        with reader.page() as newcomer:
            assert newcomer.hello["op"] == "hello"


def test_frames_that_make_no_sense_are_answered_and_the_socket_goes_on(page: Page) -> None:
    for message in ("", "{", "[1]", '{"op":"fly"}', "\x00\xff", '{"op":"ack","id":1}'):
        page.socket.send(message)
    page.socket.send_binary(b"\xff\xfe\x00")
    page.follow(1, "weather")
    page.follow(2, "experiment", experiment_id="x")
    page.follow(3, "experiment", experiment_id=4000)
    page.until(lambda: len(page.errors) == 10)
    said = {error["id"]: error["error"] for error in page.errors}
    assert said[None].startswith("a frame cannot be read")
    assert said[1].startswith("there is no document 'weather'")
    assert said[2].startswith("experiment: experiment_id")
    assert said[3].startswith("there is no experiment 4000")
    page.send(op="leave", id=99)
    page.send(op="ack", id=99, version=3)
    page.follow(4, "experiments")
    assert "rows" in page.last(4)


def test_a_trial_is_in_every_document_until_it_is_over(client: Client, page: Page) -> None:
    page.follow(1, "experiments")
    page.follow(2, "cluster")
    page.follow(3, "trials")
    page.follow(4, "usage", period_s=0.5)
    page.last(1)
    first = submit(client, slow(0.03, searcher=LONG, name="<b>first</b>", labels=["week 7"]))
    second = submit(client, quick(resources={"slots_per_trial": 2}))
    page.follow(5, "experiment", experiment_id=first.id)
    page.until(lambda: lines_of(page).get(first.id, {}).get("best_metric") is not None)
    page.until(lambda: "2 slots" in (lines_of(page)[second.id]["wait"] or ""))  # first: its turn
    line, waiting = lines_of(page)[first.id], lines_of(page)[second.id]
    assert (line["name"], line["labels"], line["num_slots"]) == ("<b>first</b>", ["week 7"], 2)
    assert line["status"] == "running"
    assert waiting["wait"].startswith("needs 2 slots; none of 2 is free; experiment")
    assert "Pause" in [remedy["button"] for remedy in waiting["remedies"]]
    page.until(lambda: page.last(3)["trials"] and page.last(3)["trials"][0]["ranks"])
    (trial,) = page.last(3)["trials"]
    assert [rank["rank"] for rank in trial["ranks"]] == [0, 1]
    counts = ("num_running", "num_waiting", "num_slots_used")  # slots are read after experiments
    page.until(lambda: [page.last(2)[count] for count in counts] == [1, 1, 2])
    assert [slot["who"] for slot in page.last(2)["agents"][0]["slots"]] == ["<b>first</b>"] * 2
    page.until(lambda: any(each["cpu"] is not None for each in page.last(4)["agents"].values()))
    shown = page.last(5)
    assert (shown["id"], shown["charts"][0]["series"][0]["kind"]) == (first.id, "line")
    first.kill()
    page.until(lambda: lines_of(page)[second.id]["status"] == "completed")
    page.until(lambda: page.last(5)["status"] == "canceled")
    page.follow(6, "comparison", experiment_ids=[first.id, second.id])
    assert [side["id"] for side in page.last(6)["sides"]] == [first.id, second.id]
    page.until(lambda: page.last(3)["trials"] == [])


def test_a_page_that_was_cut_off_gets_what_it_lacks(
    client: Client, reader: ReaderOfMaster, page: Page, done: Experiment
) -> None:
    page.follow(1, "experiments")  # as the server's own follower does
    with reader.page() as cut:
        cut.follow(1, "experiments")
        cut.until(lambda: lines_of(cut).get(done.id, {}).get("status") == "completed")
    new = submit(client, quick())
    new.wait()
    with reader.page() as again:
        assert again.hello["instance"] == cut.hello["instance"]
        again.follow(1, "experiments", has=cut)
        again.until(lambda: lines_of(again).get(new.id, {}).get("status") == "completed")
        assert set(again.frames[1]) == {"patch"}


def test_a_page_that_does_not_acknowledge_is_not_flooded(
    client: Client, reader: ReaderOfMaster, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 5)
    with reader.page(acks=False) as page:
        trial = submit(client, slow(0.01, resources=ONE_SLOT), gate.source())
        page.follow(1, "experiments")
        page.follow(2, "experiment", experiment_id=trial.id)
        gate.wait(trial)
        page.last(1), page.last(2)
        gate.open()
        trial.wait()
        page.drain(1.0)
        assert len(page.frames[1]) == len(page.frames[2]) == MOST_UNACKED
        page.send(op="ack", id=2, version=page.versions[2])
        page.until(lambda: page.last(2)["status"] == "completed")
        assert len(page.frames[2]) == MOST_UNACKED + 1


def test_questions_are_answered_and_changes_need_leave(
    client: Client, reader: ReaderOfMaster, page: Page
) -> None:
    trial = submit(client, slow(0.05, searcher=LONG, resources=ONE_SLOT))
    wait_for_steps(trial, 2)
    answer = page.ask(1, trial.id, "config")
    assert answer["error"] == ""
    assert "name: small" in answer["data"]["yaml"]
    assert "there is no question" in page.ask(2, trial.id, "nothing")["error"]
    assert "there is no experiment 999" in page.ask(3, 999, "config")["error"]
    with reader.page(may_write=False) as guest:
        for number, kind in enumerate(("command", "change", "profile")):
            said = guest.ask(number, trial.id, kind, command="kill")
            assert said["error"].startswith("you may look at experiments")
        assert guest.ask(7, trial.id, "logs", after=0, tail=5)["error"] == ""
    assert page.ask(4, trial.id, "command", command="pause")["error"] == ""
    assert "the queue has changed" in page.ask(5, trial.id, "command", command="rm")["error"]
    page.ask(6, trial.id, "command", command="kill")
    trial.wait()


def test_a_button_of_a_waiting_trial_carries_its_remedy_out(client: Client, page: Page) -> None:
    holds = submit(client, slow(0.05, searcher=LONG))
    wait_for_steps(holds, 1)
    waits = submit(client, quick(resources={"slots_per_trial": 2}))
    page.follow(1, "experiments")
    page.until(lambda: lines_of(page).get(waits.id, {}).get("remedies"))
    (pause,) = [
        remedy for remedy in lines_of(page)[waits.id]["remedies"] if remedy["button"] == "Pause"
    ]
    said = page.ask(1, waits.id, "command", command=pause["id"])
    assert said["error"] == ""
    page.until(lambda: lines_of(page)[waits.id]["status"] == "completed")
    said = page.ask(2, waits.id, "command", command=pause["id"])
    assert "the queue has changed meanwhile" in said["error"]
    holds.kill()
    holds.wait()


def test_a_deleted_experiment_ends_its_document_with_a_sentence(
    client: Client, page: Page
) -> None:
    gone = submit(client, quick())
    gone.wait()
    page.follow(1, "experiments")
    page.follow(2, "experiment", experiment_id=gone.id)
    page.until(lambda: gone.id in lines_of(page))
    page.last(2)
    client.change(Delete(experiment_id=gone.id))
    page.until(lambda: page.errors)
    (error,) = page.errors
    assert error["error"] == f"experiment {gone.id} was deleted"
    assert (error["id"], error["kind"]) == (2, "NotFound")
    page.until(lambda: gone.id not in lines_of(page))
    with pytest.raises(NotFound):
        client.experiment(gone.id)


def test_what_is_over_and_goes_on_is_followed_again(client: Client, page: Page) -> None:
    over = submit(client, quick())
    over.wait()
    page.follow(1, "experiment", experiment_id=over.id)
    page.until(lambda: page.last(1)["status"] == "completed")
    over.set_name("renamed")
    page.until(lambda: page.last(1)["name"] == "renamed")
    longer = {"name": "single", "metric": "error", "max_length": {"batches": 8}}
    over.continue_(config={"searcher": longer})
    page.until(lambda: page.last(1)["summary"] == ["step 8"])


def test_a_reader_that_was_killed_is_started_again_and_costs_no_trial_anything(
    client: Client, reader: ReaderOfMaster, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 5)
    trial = submit(client, small_config(resources=ONE_SLOT), gate.source())
    gate.wait(trial)
    with reader.page() as page:
        page.follow(1, "experiment", experiment_id=trial.id)
        page.last(1)
        killed = reader.process
        killed.kill()
        with pytest.raises((WebSocketConnectionClosedException, ConnectionError)):
            page.drain(600)
    gate.open()
    with reader.page() as again:
        assert again.hello["instance"] != page.hello["instance"]
        again.follow(1, "experiment", experiment_id=trial.id)
        again.until(lambda: again.last(1)["status"] == "completed")
    assert reader.process.pid != killed.pid
    assert trial.view.trials[0].restarts == 0


def test_documents_are_made_while_the_master_does_not_answer(
    home: DetHome, reader: ReaderOfMaster, page: Page, done: Experiment
) -> None:
    page.follow(1, "experiments")
    page.last(1)
    home.master().suspend()
    try:
        with reader.page() as other:
            other.follow(1, "experiment", experiment_id=done.id)
            assert other.last(1)["status"] == "completed"
            other.follow(2, "experiments")
            assert str(done.id) in other.last(2)["rows"]
    finally:
        home.master().resume()


def test_a_reader_ends_with_its_master_and_the_next_master_has_another(
    home: DetHome, reader: ReaderOfMaster, page: Page, tmp_path: Path
) -> None:
    client, gate = home.client(), Gate(tmp_path, 5)
    trial = submit(client, small_config(resources=ONE_SLOT), gate.source())
    page.follow(1, "experiment", experiment_id=trial.id)
    page.until(lambda: page.last(1)["summary"])
    before, process = page.last(1)["summary"], reader.process
    home.master().send_signal(signal.SIGKILL)
    process.wait()
    client.experiment(trial.id)  # starts the next master
    with reader.page() as again:
        again.follow(1, "experiment", experiment_id=trial.id)
        gate.open()
        again.until(lambda: again.last(1)["summary"] != before)
        again.until(lambda: again.last(1)["status"] == "completed")
    client.session.close()
