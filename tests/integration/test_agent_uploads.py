"""What an agent elsewhere may upload and read: files of its own runs' experiments alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.master.http.agent_listener import AgentListener
from det_jupyter.master.machine.model.events import RecordArrived
from det_jupyter.master.service.agents.agent_access import AgentAccess
from tests.integration.master_support import AGENT, RUN, Bench, bench_with_trial


class Listener:
    """The application of the listener, and requests of an agent to it."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        access = AgentAccess(folder / "agents")
        self.token = access.add(AGENT)
        self.bench, self.data_dir = bench, bench.service.store.path.parent
        self.app = AgentListener(bench.service, access, str(folder))._app

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request to a route of a run."""

        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            async with httpx.AsyncClient(transport=transport, base_url="http://m") as http:
                url = f"/api/v1/agents/{AGENT}/{path}"
                return await http.request(method, url, headers=headers, **request)

        return asyncio.run(run())


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """Return a master whose first trial runs on the agent."""
    with bench_with_trial(tmp_path / "db") as bench:
        yield Listener(bench, tmp_path)


def put(listener: Listener, name: str, offset: int, size: int, part: bytes, run: str = RUN) -> int:
    place: dict[str, str | int] = {"of": "tensorboard", "name": name, "offset": offset}
    answer = listener.send(
        "PUT", f"runs/{run}/files", params={**place, "size": size}, content=part
    )
    return answer.status_code


def test_file_of_a_trial_grows_and_is_replaced(listener: Listener) -> None:
    assert put(listener, "a/events.out.tfevents.1", 0, 2, b"ab") == 200
    assert put(listener, "a/events.out.tfevents.1", 2, 4, b"cd") == 200
    (path,) = (listener.data_dir / "tensorboard" / "1" / "1" / "a").iterdir()
    assert path.read_bytes() == b"abcd"
    assert put(listener, "a/events.out.tfevents.1", 5, 6, b"f") == 409
    assert put(listener, "a/events.out.tfevents.1", 0, 1, b"x") == 200
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize("name", ["../2/a", "/etc/a", ""])
def test_file_outside_of_the_trials_folder_is_refused(listener: Listener, name: str) -> None:
    assert put(listener, name, 0, 1, b"a") >= 400
    assert not (listener.data_dir / "tensorboard").exists()


@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "d/" * 1500 + "a", "d/" * 200 + "a"])
def test_path_that_no_file_system_takes_is_refused_in_one_sentence(
    listener: Listener, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert put(listener, name, 0, 1, b"a") == 400
    part = {"params": {"name": name, "offset": 0}, "content": b"a"}
    assert listener.send("PUT", f"runs/{RUN}/checkpoints/u/files", **part).status_code == 400
    part["params"] = {"name": "a", "offset": 0}
    long = f"runs/{RUN}/checkpoints/{'u' * 250}/files"
    assert listener.send("PUT", long, **part).status_code == 400
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a", "a/b/c")])
def test_file_in_the_place_of_a_folder_is_refused(
    listener: Listener, first: str, second: str
) -> None:
    assert put(listener, first, 0, 1, b"a") == 200
    assert put(listener, second, 0, 1, b"a") == 400


def test_file_of_a_run_that_is_not_on_the_agent_is_refused(listener: Listener) -> None:
    assert put(listener, "a", 0, 1, b"a", run="9.9.9") == 404


def test_checkpoints_of_the_runs_experiment_alone_can_be_read(listener: Listener) -> None:
    folder = listener.data_dir / "checkpoints"
    for uuid in ("own", "foreign"):
        (folder / uuid).mkdir(parents=True)
        (folder / uuid / "a").write_text("weights")
    record = CheckpointSaved(
        at=1.0, uuid="own", steps_completed=1, path=str(folder / "own"), size_bytes=7, metadata={}
    )
    listener.bench.service.take(RecordArrived(allocation_id=RUN, rank=0, record=record))
    answer = listener.send("GET", f"runs/{RUN}/checkpoints/own")
    assert answer.json()["files"] == {"a": 7}
    assert listener.send("GET", "checkpoints/own/files", params={"name": "a"}).text == "weights"
    for path in (f"runs/{RUN}/checkpoints/foreign", f"runs/{RUN}/checkpoints/absent"):
        answer = listener.send("GET", path)
        assert answer.status_code == 404
        assert "of experiment 1" in answer.text
    answer = listener.send("GET", "checkpoints/foreign/files", params={"name": "a"})
    assert answer.status_code == 404
