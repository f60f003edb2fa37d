"""A real master finds experiments, and what describes them survives its death."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.handles.queries import find_by_name, make_query
from det_jupyter.connection import Session
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.errors import ConfigError, NotFound
from tests.integration.master_support import make_client, make_request, master_process
from tests.problems import sentences_of

RANDOM = {"name": "random", "metric": "error", "max_trials": 2, "max_length": {"batches": 100}}


def found(client: Client, **query: object) -> list[int]:
    return [row.id for row in client.find(make_query(**query)).rows]  # type: ignore[arg-type]


def test_experiments_are_found_by_what_users_wrote_about_them_also_after_a_kill(
    tmp_path: Path,
) -> None:
    with master_process(tmp_path) as master:
        info = master.start()
        master.agent(info)
        client = Client(Session(info))
        first = Experiment(client, client.create(make_request(name="digits")).id)
        second = Experiment(client, client.create(make_request(searcher=RANDOM)).id)
        first.set_name("wide nets, 100 %")
        first.set_description("As on\nMonday & Tuesday")
        first.add_label("good", "wide")
        first.remove_label("wide")
        second.change_search(max_trials=3)
        check_found(client, first, second)
        with pytest.raises(ConfigError, match="name: got '', expected one line of text"):
            first.set_name("")
        with pytest.raises(ConfigError, match=r"add_labels: got .*, expected words, each of 1 to"):
            first.add_label("")
        with pytest.raises(ConfigError, match=r"state: got 'runing', expected running, queued"):
            found(client, state="runing")
        refuses_what_it_does_not_know(info)
        client.session.close()
        master.kill()
        client = Client(Session(master.start()))
        check_found(client, Experiment(client, first.id), Experiment(client, second.id))
        client.session.close()


def check_found(client: Client, first: Experiment, second: Experiment) -> None:
    assert found(client) == [second.id, first.id]
    assert found(client, state=["running"], label=["good"], since="1h") == [first.id]
    assert found(client, state="queued") == [second.id]
    assert found(client, text="monday & 100", sort="oldest", limit=1) == [first.id]
    assert find_by_name(client, "wide nets, 100 %", NOTEBOOK) == first.id
    with pytest.raises(NotFound, match="did you mean 'wide nets, 100 %'"):
        find_by_name(client, "wide nets", NOTEBOOK)
    view = first.view
    assert (view.labels, view.description) == (["good"], "As on\nMonday & Tuesday")
    (change,) = second.search_changes
    assert (change.before, change.after) == ({"max_trials": 2}, {"max_trials": 3})


def refuses_what_it_does_not_know(info: MasterInfo) -> None:
    with make_client(info) as http:
        for parameters in ("colour=red", "limit=-1", "sort=best", "since=soon"):
            answer = http.get(f"/experiments?{parameters}")
            name = parameters.partition("=")[0]
            assert answer.status_code == 422
            assert sentences_of(answer.json())[0].startswith(f"{name}: got ")
