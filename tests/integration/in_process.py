"""A master in this process with two checkpoints of an experiment; its client; lines of `det`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.verbs.grammar import Call, parse_words
from det_jupyter.storage import open_storage, path_of
from tests.integration.master_support import validation
from tests.integration.routes_support import INFO, Routes, complete, opened_routes, saved, submit

Det = Callable[..., str]


class InProcess(httpx.BaseTransport):
    """Sends requests to the routes of this process."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def ask() -> httpx.Response:
            app: Any = self._routes.users
            answer = await httpx.ASGITransport(app).handle_async_request(request)
            return httpx.Response(answer.status_code, content=await answer.aread())

        return self._routes.run(ask())


@pytest.fixture
def routes(tmp_path: Path) -> Iterator[Routes]:
    """A master with an experiment that has two checkpoints: `good`, and `bad`."""
    with opened_routes(tmp_path) as routes:
        routes.bench.register()
        keep_all = {"save_trial_best": 9, "save_trial_latest": 9}
        submit(routes, name="digits", checkpoint_storage=keep_all, hyperparameters={"lr": 0.1})
        storage = open_storage(None, paths.data_dir())
        records: list[Any] = []
        for steps, uuid, error in ((50, "good", 0.1), (100, "bad", 0.4)):
            draft = storage.begin(uuid)
            (draft.path / "state_dict.pt").write_bytes(b"weights")
            (draft.path / "metadata.json").write_text(json.dumps({"uuid": uuid}))
            draft.commit()
            records += [validation(steps, error), saved(uuid, steps, path_of(storage, uuid))]
        complete(routes, 1, *records)
        yield routes


@pytest.fixture
def client(routes: Routes) -> Iterator[Client]:
    info = INFO.model_copy(update={"pid": os.getpid(), "data_dir": str(paths.data_dir())})
    session = Session(info, transport=InProcess(routes))
    yield Client(session)
    session.close()


@pytest.fixture
def det(client: Client) -> Det:
    """What runs a line of the shell."""

    def run(*words: str) -> str:
        options = parse_words(shell_parser(), words)
        call = Call(
            options=options, client=client, experiment=lambda i: Experiment(client, i),
            reader=SHELL,
        )  # fmt: skip
        answer = options.verb.run(call)
        assert isinstance(answer, str)
        return answer

    return run
