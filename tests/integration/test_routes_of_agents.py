"""What agents of other computers may ask of the master: each for its own runs only."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import AgentReports, Chunk, ConnectionsChecked
from det_jupyter.contract.run.journal import CheckpointSaved, to_line
from det_jupyter.master.http.guard import MOST_BODY_BYTES
from tests.integration.master_support import (
    RUN,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_request,
    started,
    validation,
)
from tests.integration.routes_support import Routes, accepted, opened_routes, refusal_of, requested

HERE = "/agents/b"
RUNS = f"{HERE}/runs/{RUN}"


class Remote:
    """An agent of another computer, on which the first trial runs."""

    def __init__(self, routes: Routes, **changes: Any) -> None:
        self.routes = routes
        self.token = routes.add_agent("b")
        self.data = routes.service.store.path.parent
        blobs = BlobStore(self.data / "blobs")
        self.payload, self.sources = blobs.put(b"payload"), blobs.put(b"{}")
        self.other = blobs.put(b"of another trial")
        body = make_request(**changes).model_dump(mode="json")
        capsule = {"payload": self.payload, "sources": self.sources}
        routes.post("/experiments", **body | {"capsule": body["capsule"] | capsule})

    def ask(self, method: str, path: str, **options: Any) -> Any:
        return self.routes.as_agent(self.token, method, path, **options)

    def done(self, method: str, path: str, **options: Any) -> Any:
        return accepted(self.ask(method, path, **options))

    def refused(self, status: int, method: str, path: str, **options: Any) -> str:
        return refusal_of(self.ask(method, path, **options), status)

    def report(self, *reports: Any) -> Any:
        batch = AgentReports(session="of b", reports=list(reports)).model_dump(mode="json")
        return self.done("POST", f"{HERE}/reports", json=batch)["offsets"]

    def upload(self, uuid: str, files: dict[str, bytes], **shares: int) -> Any:
        for name, content in files.items():
            where = f"{RUNS}/checkpoints/{uuid}/files"
            self.done("PUT", where, params={"name": name, "offset": 0}, content=content)
        sizes = {name: len(content) for name, content in files.items()}
        body = {"files": sizes, **shares}
        return self.done("POST", f"{RUNS}/checkpoints/{uuid}", json=body)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    with opened_routes(tmp_path) as routes:
        yield Remote(routes)


def saved(uuid: str, path: str, steps: int = 50) -> CheckpointSaved:
    return CheckpointSaved(
        at=1.0, uuid=uuid, steps_completed=steps, path=path, size_bytes=1, metadata={}
    )


def test_an_agent_reaches_its_own_routes_with_its_own_token_only(remote: Remote) -> None:
    routes, clock = remote.routes, f"{HERE}/clock"
    assert accepted(routes.as_agent(remote.token, "GET", clock))["at"] == pytest.approx(
        time.time(), abs=600
    )
    for token in ("", "guess", remote.token + "x"):
        refused = routes.as_agent(token, "GET", clock)
        assert "does not accept this token" in refusal_of(refused, 401)
        assert refused.headers["connection"] == "close"
    basic = routes.as_agent("", "GET", clock, headers={"authorization": f"Basic {remote.token}"})
    assert basic.status_code == 401
    for path in ("/agents/c/clock", "/agents/bb/clock", "/experiments", "/status"):
        assert "of agent b only" in remote.refused(403, "GET", path)
    large = {"content-length": str(MOST_BODY_BYTES + 1)}
    assert "too large" in remote.refused(413, "POST", f"{HERE}/probe", headers=large)
    assert remote.refused(404, "GET", f"{HERE}/nothing")


def test_a_refused_agent_is_awaited_no_more(remote: Remote) -> None:
    access = remote.routes.service.access
    access.remove("b", awaited_from=time.time())
    assert access.needs_port(time.time())
    assert remote.ask("GET", f"{HERE}/clock").status_code == 401
    assert not access.needs_port(time.time())


def test_an_agent_is_shown_with_the_address_that_it_has_connected_from(remote: Remote) -> None:
    (view,) = remote.routes.get("/status")["agents"]
    state = remote.routes.service.machine.state.agents["b"]
    assert (view["id"], state.is_remote, state.address) == ("b", True, "10.0.0.7")


def test_reports_are_stored_and_counted_in_bytes(remote: Remote) -> None:
    text = to_line(started())
    chunk = Chunk(allocation_id=RUN, stream="journal-0", offset=0, size_bytes=len(text), text=text)
    assert remote.report(gang_started(), chunk) == {RUN: {"journal-0": len(text)}}
    assert remote.routes.get("/trials/1")["allocation"]["ranks"]


def test_commands_are_streamed_until_the_master_stops(remote: Remote) -> None:
    async def stopped_soon() -> None:
        await asyncio.sleep(0)
        remote.routes.service.end_streams()

    async def both() -> str:
        asking = requested(
            remote.routes.agents,
            remote.token,
            "GET",
            f"{HERE}/commands",
            params={"session": "of b"},
        )
        answer, _ = await asyncio.gather(asking, stopped_soon())
        return str(answer.text)

    assert '"kind":"start_gang"' in remote.routes.run(both())
    assert "register" in remote.refused(
        409, "GET", f"{HERE}/commands", params={"session": "before"}
    )


def test_only_blobs_of_the_agents_own_trials_are_given_out(remote: Remote) -> None:
    assert remote.ask("GET", f"{HERE}/blobs/{remote.payload}").content == b"payload"
    words = remote.refused(404, "GET", f"{HERE}/blobs/{remote.other}")
    assert words.endswith(f"blob {remote.other[:12]} is not part of a trial on agent b")
    BlobStore(remote.data / "blobs").path(remote.payload).unlink()
    assert "not stored any more" in remote.refused(404, "GET", f"{HERE}/blobs/{remote.payload}")


def test_a_run_whose_checkpoints_are_uploaded_starts_without_a_folder(remote: Remote) -> None:
    assert remote.done("POST", f"{RUNS}/start") == {
        "storage": None, "probe": "", "checkpoints": {},
    }  # fmt: skip
    words = remote.refused(404, "POST", f"{HERE}/runs/9.9.1/start")
    assert words.endswith("run 9.9.1 is not on agent b")


def test_a_run_gets_a_probe_of_the_folder_that_both_may_share(tmp_path: Path) -> None:
    share = tmp_path / "share"
    with opened_routes(tmp_path) as routes:
        remote = Remote(routes, checkpoint_storage={"host_path": str(share)})
        first = remote.done("POST", f"{RUNS}/start")
        assert first["storage"] == str(share)
        probe = share / first["probe"]
        assert probe.is_file()
        old = share / ".det-probe-old"
        old.touch()
        os.utime(old, (1.0, 1.0))
        second = share / remote.done("POST", f"{RUNS}/start")["probe"]
        assert sorted(share.iterdir()) == sorted({probe, second})


def test_an_uploaded_checkpoint_is_what_the_next_run_starts_from(remote: Remote) -> None:
    files = {"a/weights.pt": b"weights", "metadata.json": b"{}"}
    stored = remote.upload("u1", files)
    assert stored == {"path": str(remote.data / "checkpoints" / "u1"), "silent_s": 0.0}
    sizes = {"a/weights.pt": 7, "metadata.json": 2}
    remote.report(gang_started(), make_chunk([started(), saved("u1", stored["path"])]))
    assert remote.done("GET", f"{RUNS}/checkpoints/u1")["files"] == sizes
    one = {"params": {"name": "a/weights.pt"}}
    assert remote.ask("GET", f"{HERE}/checkpoints/u1/files", **one).content == b"weights"
    remote.report(gang_exited(code=1))
    again = f"{HERE}/runs/1.1.2"
    assert remote.done("POST", f"{again}/start")["checkpoints"] == {"u1": sizes}


def test_checkpoints_of_others_are_not_given_out(remote: Remote) -> None:
    remote.upload("u1", {"w": b"x"})  # no run has reported it
    assert "no checkpoint u1 of experiment 1" in remote.refused(
        404, "GET", f"{RUNS}/checkpoints/u1"
    )
    where, one = f"{HERE}/checkpoints/u1/files", {"params": {"name": "w"}}
    assert "is not one of a trial on agent b" in remote.refused(404, "GET", where, **one)
    remote.report(gang_started(), make_chunk([started(), saved("u1", "/u1")]))
    none = {"params": {"name": "none"}}
    assert "has no file none" in remote.refused(404, "GET", where, **none)
    out = {"params": {"name": "../u2/w"}}
    assert "expected the path" in str(remote.ask("GET", where, **out).json())


def test_parts_are_stored_only_for_a_run_of_the_agent(remote: Remote) -> None:
    part = {"params": {"name": "w", "offset": 0}, "content": b"x"}
    for method, path, options in (
        ("PUT", f"{HERE}/runs/9.9.1/checkpoints/u1/files", part),
        ("POST", f"{HERE}/runs/9.9.1/checkpoints/u1", {"json": {"files": {"w": 1}}}),
        (
            "PUT",
            f"{HERE}/runs/9.9.1/files",
            {"params": {"of": "traces", "name": "t", "offset": 0, "size": 1}, "content": b"x"},
        ),
    ):
        assert "run 9.9.1 is not on agent b" in remote.refused(404, method, path, **options)
    assert not (remote.data / "checkpoints" / "u1").exists()


def test_a_checkpoint_of_several_agents_is_there_when_all_shares_are(remote: Remote) -> None:
    first = remote.upload("u1", {"w0": b"x"}, share=0, num_shares=2)
    assert first["path"] == ""
    assert remote.upload("u1", {"w1": b"y"}, share=1, num_shares=2)["path"].endswith("/u1")


def test_a_trace_that_is_written_again_has_no_end_of_the_one_before(remote: Remote) -> None:
    def put(content: bytes, offset: int, size: int) -> Path:
        query = {"of": "traces", "name": "a/t.json", "offset": offset, "size": size}
        return Path(remote.done("PUT", f"{RUNS}/files", params=query, content=content)["path"])

    path = put(b"123456", 0, 6)
    assert path == remote.data / "traces" / "1" / "1" / "a" / "t.json"
    put(b"ab", 0, 4)
    assert path.read_bytes() == b"ab3456"  # until all of it is there
    put(b"cd", 2, 4)
    assert path.read_bytes() == b"abcd"


def test_an_agent_measures_with_probes_of_any_size(remote: Remote) -> None:
    assert remote.ask("GET", f"{HERE}/probe", params={"num_bytes": 5}).content == bytes(5)
    assert remote.ask("GET", f"{HERE}/probe", params={"num_bytes": 0}).content == b""
    most = 16 * 2**20
    assert "num_bytes" in remote.refused(
        422, "GET", f"{HERE}/probe", params={"num_bytes": most + 1}
    )
    assert remote.done("POST", f"{HERE}/probe", content=b"123") == {}
    measured = ConnectionsChecked(latency_s=0.1, down_bytes_per_s=1.0, up_bytes_per_s=1.0)
    words = remote.refused(
        404, "POST", f"{HERE}/checks/none", json=measured.model_dump(mode="json")
    )
    assert words.endswith("the check is over")


def test_a_check_contains_what_the_agent_has_answered(remote: Remote) -> None:
    routes = remote.routes
    link = routes.service.links.get("b", "of b")
    link.is_streaming = True
    measured = ConnectionsChecked(latency_s=0.1, down_bytes_per_s=1e9, up_bytes_per_s=1e9)

    async def answer() -> None:
        while (order := link._queue[-1]) is None or order.kind != "check_connections":
            await asyncio.sleep(0)
        routes.listener.checks.take("b", order.check_id, measured)

    async def both() -> Any:
        asking = requested(routes.users, "token", "POST", "/agents/check", json={})
        checked, _ = await asyncio.gather(asking, answer())
        return checked.json()

    found = routes.run(both())
    assert found["problems"] == []
    (one,) = found["agents"]
    assert one["agent"] == "b"
    assert one["measured"]["down_bytes_per_s"] == 1e9


def test_a_tunnel_that_was_not_ordered_cannot_be_joined(remote: Remote) -> None:
    for method in ("GET", "POST"):
        words = remote.refused(404, method, f"{HERE}/tunnels/guess", content=b"")
        assert "no such tunnel" in words


def test_the_end_of_a_run_is_known_to_the_agent(remote: Remote) -> None:
    told = [started(), first_step(), validation(100, 0.5), *last_words()]
    remote.report(gang_started(), make_chunk(told), gang_exited())
    assert remote.routes.get("/experiments/1")["state"] == "COMPLETED"
    assert "is not on agent b" in remote.refused(404, "POST", f"{RUNS}/start")


def test_blobs_of_each_of_the_agents_trials_are_given_out(tmp_path: Path) -> None:
    with opened_routes(tmp_path) as routes:
        remote = Remote(routes, resources={"slots_per_trial": 1})
        body = make_request(resources={"slots_per_trial": 1}).model_dump(mode="json")
        secret = BlobStore(remote.data / "blobs").put(b'{"salt": "", "values": {}}')
        body["capsule"] |= {"payload": remote.other, "environment": secret}
        routes.post("/experiments", **body)
        for digest in (remote.payload, remote.other, secret, remote.sources):
            assert remote.ask("GET", f"{HERE}/blobs/{digest}").status_code == 200
        words = remote.refused(404, "POST", f"{HERE}/runs/2.2.2/start")
        assert words.endswith("run 2.2.2 is not on agent b")
        assert remote.done("POST", f"{HERE}/runs/2.2.1/start")["storage"] is None


def test_a_run_reads_no_checkpoint_from_the_master_that_is_only_elsewhere(remote: Remote) -> None:
    remote.report(gang_started(), make_chunk([started(), saved("u1", "/elsewhere/u1")]))
    remote.report(gang_exited(code=1))
    assert remote.done("POST", f"{HERE}/runs/1.1.2/start")["checkpoints"] == {}
