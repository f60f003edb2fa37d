"""Templates at the master's door: kept over restarts, refused when wrong, merged at submission."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.client import Client
from det_jupyter.connection import Session
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import ConfigError, DetError, NotFound
from det_jupyter.master.service.storing.store import Store
from tests.integration.master_support import make_client, make_request, master_process
from tests.problems import said, sentences_of

SLOTS = {"resources": {"slots_per_trial": 2}, "labels": ["team"]}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MasterInfo]:
    """Return where a real master with an agent of two slots is."""
    with master_process(tmp_path_factory.mktemp("home")) as master:
        info = master.start()
        master.agent(info)
        yield info


@pytest.fixture
def http(info: MasterInfo) -> Iterator[httpx.Client]:
    """Return a client with the token."""
    with make_client(info) as client:
        yield client


@pytest.fixture
def client(info: MasterInfo) -> Iterator[Client]:
    """Return a client as the notebook has it."""
    session = Session(info)
    yield Client(session)
    session.close()


def submit(http: httpx.Client, template: str, **changes: Any) -> httpx.Response:
    body = make_request().model_dump(mode="json")
    del body["config"]["resources"]
    return http.post(
        "/experiments", json=body | {"template": template, "config": body["config"] | changes}
    )


def test_a_template_is_kept_listed_replaced_and_deleted(client: Client) -> None:
    made = client.set_template("base", SLOTS)
    assert (made.name, made.config) == ("base", SLOTS)
    replaced = client.set_template("base", {"max_restarts": 1})
    assert replaced.config == {"max_restarts": 1}
    assert replaced.created_at == made.created_at
    assert replaced.updated_at > made.updated_at
    client.set_template("a.second_one-2", {})
    assert [template.name for template in client.templates()] == ["a.second_one-2", "base"]
    assert client.delete_template("base").name == "base"
    with pytest.raises(NotFound, match="there is no template 'base'"):
        client.template("base")
    with pytest.raises(NotFound, match="there is no template 'base'"):
        client.delete_template("base")
    client.delete_template("a.second_one-2")


def test_an_unknown_name_names_the_one_that_was_meant(client: Client) -> None:
    with pytest.raises(NotFound, match="there is none yet"):
        client.template("digits")
    client.set_template("digits", {})
    with pytest.raises(NotFound, match=r"there is no template 'digit'; did you mean digits\?"):
        client.template("digit")
    with pytest.raises(NotFound, match="there is no template 'x'; there are digits"):
        client.template("x")
    client.delete_template("digits")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../../etc/passwd", "-x", "a b", "x" * 101, "a?b=c", "a#b"],
)
def test_a_name_that_could_be_mistaken_for_something_else_is_refused(
    client: Client, name: str
) -> None:
    with pytest.raises(ConfigError, match=r"name: got .*expected letters, digits"):
        client.set_template(name, {})
    assert client.templates() == []


def test_a_wrong_template_is_refused_with_everything_and_not_kept(client: Client) -> None:
    wrong = {"resources": {"slots_per_trial": "two"}, "serch": {}, "template": "x"}
    with pytest.raises(ConfigError) as error:
        client.set_template("wrong", wrong)
    problems = said(error.value.problems)
    assert len(problems) == 3
    assert any(p.startswith("resources.slots_per_trial: got 'two'") for p in problems)
    assert any(p.startswith("serch: ") and "searcher" in p for p in problems)
    assert any(p.startswith("template: ") for p in problems)
    assert client.templates() == []


def test_an_experiment_keeps_what_its_template_gave(http: httpx.Client, client: Client) -> None:
    client.set_template("base", SLOTS)
    answer = submit(http, "base", labels=["mine"])
    assert answer.status_code == 201, answer.text
    view = answer.json()
    assert view["template"] == "base"
    assert view["config"]["resources"]["slots_per_trial"] == 2
    assert sorted(view["config"]["labels"]) == ["mine", "team"]
    client.delete_template("base")
    effective = client.effective_config(view["id"])
    assert effective.template == "base"
    assert effective.config["resources"]["slots_per_trial"] == 2
    assert effective.origins["resources.slots_per_trial"] == "template"
    assert effective.origins["searcher.metric"] == "you"
    assert "max_restarts" not in effective.origins
    (line,) = [line for line in effective.yaml.splitlines() if "slots_per_trial" in line]
    assert line.split("#")[1].strip() == "template"
    http.post(f"/experiments/{view['id']}/kill")


def test_a_template_that_is_not_there_is_refused_at_submission(http: httpx.Client) -> None:
    answer = submit(http, "nowhere")
    assert answer.status_code == 404
    assert sentences_of(answer.json()) == ["there is no template 'nowhere'; there is none yet"]


def test_templates_outlive_the_master(tmp_path: Path) -> None:
    with master_process(tmp_path) as master:
        with make_client(master.start()) as http:
            assert http.put("/templates/base", json={"config": SLOTS}).status_code == 200
        master.kill()
        with make_client(master.start()) as http:
            assert http.get("/templates/base").json()["config"] == SLOTS


def test_a_database_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "det.sqlite3"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 1")
    db.close()
    before = path.read_bytes()
    with pytest.raises(DetError, match=r"got schema 1, expected 3; .* move the file away"):
        Store(path)
    assert path.read_bytes()[100:] == before[100:]
