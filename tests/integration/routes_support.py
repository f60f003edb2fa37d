"""The master's HTTP routes in the process of the test: those of users, and those of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.delivery.alerts import Alerts
from det_jupyter.master.delivery.trackers import Trackers
from det_jupyter.master.http.agent_listener import (
    AgentGuard,
    AgentListener,
    access_routes,
    create_agent_app,
)
from det_jupyter.master.http.api import create_app
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.http.routes_alerts import alert_routes
from det_jupyter.master.http.routes_checks import check_routes
from det_jupyter.master.http.routes_disks import disk_routes
from det_jupyter.master.http.routes_joined import joined_cluster_routes
from det_jupyter.master.http.routes_trackers import tracker_routes
from tests.integration.master_support import (
    Bench,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_registration,
    make_request,
    started,
)
from tests.problems import sentences_of

T = TypeVar("T")
RANDOM = {"name": "random", "metric": "error", "max_trials": 3, "max_length": {"batches": 100}}
INFO = MasterInfo(
    url="http://127.0.0.1:1", token="token", pid=7, started_at=5.0,
    version="1.2", protocol=PROTOCOL, python="python", data_dir="/data",
)  # fmt: skip


class Routes:
    """A master without a network.

    Attributes:
        stops: The requests to stop: whether with everything.
    """

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder / "data" / "det.sqlite3")
        self.service = self.bench.service
        self.stops: list[bool] = []
        self._runner = asyncio.Runner()
        access = self.service.access
        listener = self.listener = AgentListener(self.service, access, "/data")
        self.clusters = Clusters(self.service, access, listener.open, listener.close_unneeded)

    @cached_property
    def users(self) -> Guard:
        """The application for users."""
        return create_app(
            self.service,
            INFO,
            request_stop=self.stops.append,
            more_routes=[
                access_routes(self.service, self.service.access, self.listener),
                alert_routes(self.service, Alerts(self.service)),
                check_routes(self.listener.checks),
                disk_routes(self.service),
                joined_cluster_routes(self.clusters),
                tracker_routes(self.service, Trackers(self.service)),
            ],
        )

    @cached_property
    def agents(self) -> AgentGuard:
        """The application for agents of other computers."""
        at = self.listener
        return create_agent_app(
            self.service, self.service.access, at.consoles, at.inbox, at.checks, "/data"
        )

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of all requests."""
        return self._runner.run(act)

    def close(self) -> None:
        """Stop listening, and close the database."""
        self.run(self.clusters.close(end_hosts=False))
        self.run(self.listener.close())
        self._runner.close()
        self.service.close()

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the answer to a request of a user."""
        return self.run(requested(self.users, "token", method, path, **options))

    def get(self, path: str, **query: Any) -> Any:
        """Return what a route answers; it must not refuse."""
        return accepted(self.ask("GET", path, params=query))

    def post(self, path: str, **body: Any) -> Any:
        """Return what a route answers to a body; it must not refuse."""
        return accepted(self.ask("POST", path, json=body))

    def refused(self, status: int, method: str, path: str, **options: Any) -> str:
        """Return the sentences of a refusal."""
        return refusal_of(self.ask(method, path, **options), status)

    def add_agent(self, name: str = "b") -> str:
        """Add an agent of another computer, which registers; return its token."""
        token = self.service.access.add(name)
        registration = make_registration(f"of {name}")
        body = registration.model_copy(update={"hostname": name, "versions": installed_versions()})
        answer = self.as_agent(
            token, "POST", f"/agents/{name}/register", json=body.model_dump(mode="json")
        )
        accepted(answer)
        return token

    def as_agent(self, token: str, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the answer of the listener for agents of other computers."""
        return self.run(requested(self.agents, token, method, path, **options))


async def requested(
    app: Any, token: str, method: str, path: str, **options: Any
) -> httpx.Response:
    """Return the answer of an application."""
    transport = httpx.ASGITransport(app, client=("::ffff:10.0.0.7", 5))
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:1/api/v1", headers=headers
    ) as client:
        return await client.request(method, path, **options)


def accepted(answer: httpx.Response) -> Any:
    """Return the content of an answer that is no refusal."""
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def refusal_of(answer: httpx.Response, status: int) -> str:
    """Return the sentences of a refusal."""
    assert answer.status_code == status, answer.text
    return "\n".join(sentences_of(answer.json()))


@contextmanager
def opened_routes(folder: Path) -> Iterator[Routes]:
    """Give a master whose files are in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(paths.HOME_VARIABLE, str(folder))
        paths.data_dir()
        routes = Routes(folder)
        try:
            yield routes
        finally:
            routes.close()


def submit(routes: Routes, **changes: Any) -> Any:
    """Submit an experiment of one trial on two slots."""
    body = make_request(**changes).model_dump(mode="json")
    return routes.post("/experiments", **body | {"cwd": str(paths.data_dir())})


def saved(uuid: str, steps: int, path: str = "", at: float = 1.0) -> CheckpointSaved:
    """Return the record of a checkpoint."""
    return CheckpointSaved(
        at=at, uuid=uuid, steps_completed=steps, path=path or f"/c/{uuid}", size_bytes=1,
        metadata={},
    )  # fmt: skip


def complete(routes: Routes, number: int = 1, *records: Any) -> None:
    """Let the only trial of an experiment train to its end."""
    run = f"{number}.{number}.1"
    told = [started(), first_step(), *records, *last_words()]
    routes.bench.report(gang_started(run), make_chunk(told, run=run), gang_exited(run))
