"""What users' routes about experiments answer, and what a request changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import StartGang
from det_jupyter.master.machine.model.commands import DeleteCheckpoints
from det_jupyter.storage.directory import DirectoryStorage
from tests.integration.master_support import (
    AGENT,
    gang_exited,
    gang_started,
    make_chunk,
    make_request,
    started,
    validation,
)
from tests.integration.routes_support import RANDOM, Routes, complete, opened_routes, saved, submit
from tests.integration.stored import stored


@pytest.fixture
def routes(tmp_path: Path) -> Iterator[Routes]:
    """Return a master with an agent of two slots."""
    with opened_routes(tmp_path) as routes:
        routes.bench.register()
        yield routes


def test_an_experiment_is_submitted_found_and_shown_with_its_configuration(
    routes: Routes,
) -> None:
    body = make_request(name="one").model_dump(mode="json")
    answer = routes.ask("POST", "/experiments", json=body)
    assert (answer.status_code, answer.json()["id"]) == (201, 1)
    assert submit(routes, name="two")["id"] == 2
    assert [row["id"] for row in routes.get("/experiments", name="t*")["rows"]] == [2]
    assert routes.get("/experiments/2")["name"] == "two"
    config = routes.get("/experiments/2/config")
    assert config["config"]["name"] == "two"
    assert config["origins"]["name"] == "you"


def test_the_code_of_an_experiment_is_that_of_its_cells_and_modules(routes: Routes) -> None:
    blobs = BlobStore(routes.service.store.path.parent / "blobs")
    cells = b'{"<cell>": {"label": "Cell In[5]", "source": "net = Net()"}}'
    modules = {"nets.py": blobs.put(b"class Net: ...")}
    body = make_request().model_dump(mode="json")
    body["capsule"] |= {"sources": blobs.put(cells), "modules": modules}
    routes.post("/experiments", **body)
    expected = {"Cell In[5]": "net = Net()", "nets.py": "class Net: ..."}
    assert routes.get("/experiments/1/code")["files"] == expected


def test_templates_are_listed_by_name_replaced_and_deleted(routes: Routes) -> None:
    for name in ("b", "a"):
        routes.ask("PUT", f"/templates/{name}", json={"config": {"max_restarts": 1}})
    assert [each["name"] for each in routes.get("/templates")] == ["a", "b"]
    changed = routes.ask("PUT", "/templates/a", json={"config": {"max_restarts": 2}}).json()
    assert changed == routes.get("/templates/a")
    assert changed["config"] == {"max_restarts": 2}
    assert changed["updated_at"] >= changed["created_at"] > time.time() - 600
    assert "max_restarts" in routes.refused(
        422, "PUT", "/templates/a", json={"config": {"max_restarts": "two"}}
    )
    assert routes.ask("DELETE", "/templates/a").json() == changed
    assert routes.refused(404, "GET", "/templates/a").endswith("b")
    assert submit_with(routes, "b")["template"] == "b"


def submit_with(routes: Routes, template: str) -> Any:
    body = make_request().model_dump(mode="json")
    return routes.post("/experiments", **body | {"template": template})


def test_an_experiment_that_is_over_is_continued_with_changes(routes: Routes) -> None:
    submit(routes)
    assert "only one that is over" in routes.refused(
        409, "POST", "/experiments/1/continue", json={}
    )
    complete(routes, 1, validation(100, 0.5), saved("c1", 100))
    longer = {"searcher": {"max_length": {"batches": 200}}}
    view = routes.post("/experiments/1/continue", config=longer)
    assert (view["id"], view["state"]) == (1, "ACTIVE")
    config = routes.get("/experiments/1/config")["config"]
    assert config["searcher"]["max_length"] == {"batches": 200}


def test_a_failed_experiment_is_continued_as_it_is(routes: Routes) -> None:
    submit(routes, max_restarts=0)
    before = routes.get("/experiments/1/config")["config"]
    routes.bench.report(gang_started(), make_chunk([started()]), gang_exited(code=1))
    assert routes.get("/experiments/1")["state"] == "ERROR"
    assert routes.post("/experiments/1/continue")["state"] == "ACTIVE"
    assert routes.get("/experiments/1/config")["config"] == before


@pytest.mark.parametrize("verb", ["activate", "continue"])
def test_what_would_run_in_a_folder_that_is_gone_is_refused(routes: Routes, verb: str) -> None:
    body = make_request().model_dump(mode="json") | {"cwd": "/gone"}
    routes.post("/experiments", **body)
    if verb == "activate":
        routes.post("/experiments/1/pause", at_once=True)
        routes.bench.report(gang_started(), gang_exited(code=137))
    else:
        complete(routes, 1, validation(100, 0.5), saved("c1", 100))
    body = {"config": {"searcher": {"max_length": {"batches": 200}}}}
    asked = body if verb == "continue" else {}
    assert "/gone" in routes.refused(409, "POST", f"/experiments/1/{verb}", json=asked)


def test_a_trial_is_trained_further_as_an_experiment_once_for_a_key(routes: Routes) -> None:
    submit(routes, name="source")
    complete(routes, 1, validation(100, 0.5), saved("c1", 100))
    body = {"length": {"batches": 300}, "key": "k"}
    first, again = (routes.post("/trials/1/continue", **body) for _ in range(2))
    assert (first["id"], again["id"]) == (2, 2)
    config = routes.get("/experiments/2/config")["config"]
    assert config["searcher"]["max_length"] == {"batches": 300}
    start = routes.bench.service.links.get(AGENT, "first")._queue
    plans = [each.plan for each in start if isinstance(each, StartGang)]
    assert plans[-1].checkpoint is not None
    assert plans[-1].checkpoint.uuid == "c1"


def test_the_importance_compares_trials_that_ended_with_a_value(routes: Routes) -> None:
    submit(routes)
    view = routes.get("/experiments/1/importance")
    assert (view["metric"], view["num_trials"], view["shares"]) == ("error", 0, {})
    complete(routes, 1, validation(100, 0.5))
    assert routes.get("/experiments/1/importance")["num_trials"] == 1
    submit(routes)
    run = "2.2.1"  # which goes on
    routes.bench.report(gang_started(run), make_chunk([started(), validation(50, 0.5)], run=run))
    assert routes.get("/experiments/2/importance")["num_trials"] == 0


def test_a_preview_counts_what_would_train_here(routes: Routes) -> None:
    config = make_request(searcher=RANDOM).config
    view = routes.post("/preview", config=config)
    assert (view["num_trials"], view["slots"], view["concurrent"]) == (3, 2, 1)
    assert view["pace"] is None
    paced = routes.post("/preview", config=config, seconds_per_batch=2.0)
    assert paced["seconds"] == pytest.approx(600.0)
    large = make_request(resources={"slots_per_trial": 8}).config
    assert "resources.slots_per_trial: got 8" in routes.refused(
        422, "POST", "/preview", json={"config": large}
    )
    assert routes.get("/experiments")["rows"] == []


def test_a_preview_is_timed_by_the_newest_experiment_of_the_same_code(routes: Routes) -> None:
    for number, (entrypoint, seconds) in enumerate([("Trial", 10), ("Trial", 20), ("Net", 30)], 1):
        submit(routes, entrypoint=entrypoint)
        complete(
            routes, number, *(replace(validation(50 * i, 0.5), at=i * seconds) for i in (1, 2))
        )
    pace = routes.post("/preview", config=make_request().config)["pace"]
    assert pace == {
        "unit": "batches",
        "seconds_per_unit": pytest.approx(0.4),
        "source": "measured in experiment 2",
    }


def test_a_preview_warns_of_uploads_only_if_there_are_agents_elsewhere(routes: Routes) -> None:
    config, elsewhere = make_request().config, "agents of other computers (b)"
    shared = config | {"checkpoint_storage": {"host_path": "/share"}}
    assert elsewhere not in str(routes.post("/preview", config=config)["notices"])
    routes.add_agent("b")
    assert elsewhere in str(routes.post("/preview", config=config)["notices"])
    assert elsewhere not in str(routes.post("/preview", config=shared)["notices"])


def test_retention_shows_what_it_would_delete_and_deletes_it(routes: Routes) -> None:
    submit(routes, checkpoint_storage={"save_trial_latest": 3})
    steps = {"c1": 10, "c2": 20, "c3": 30}
    routes.bench.report(
        gang_started(), make_chunk([started(), *(saved(u, s) for u, s in steps.items())])
    )
    numbers = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}
    tried = routes.post("/experiments/1/retention", **numbers, dry_run=True)
    assert {each["uuid"] for each in tried} == {"c1", "c2"}
    assert {each["state"] for each in routes.get("/experiments/1/checkpoints")} == {"COMPLETED"}
    assert routes.post("/experiments/1/retention", **numbers) == tried
    assert routes.post("/experiments/1/retention", **numbers, dry_run=True) == []
    deletion = routes.service.deletions.get_nowait()
    assert isinstance(deletion, DeleteCheckpoints)
    assert set(deletion.paths) == {"c1", "c2"}


def test_checkpoints_are_dropped_only_if_their_files_match(routes: Routes, tmp_path: Path) -> None:
    submit(routes)
    storage = DirectoryStorage(tmp_path / "store")
    with stored(storage, "c1") as folder:
        (folder / "weights.pt").write_bytes(b"w")
    complete(routes, 1, validation(100, 0.5), saved("c1", 100, str(tmp_path / "store" / "c1")))
    body: dict[str, Any] = {"uuids": ["c1"], "globs": ["*.txt"]}
    assert "*.txt" in routes.refused(404, "POST", "/checkpoints/delete", json=body)
    (one,) = routes.post("/checkpoints/delete", uuids=["c1", "c1"], globs=["*.pt"])
    assert one["uuid"] == "c1"
    assert "c9" in routes.refused(409, "POST", "/checkpoints/delete", json={"uuids": ["c9"]})


def test_pools_are_replaced_and_kept_in_the_users_file(routes: Routes) -> None:
    routes.service.file_problems = ["pools.yaml: wrong"]
    body = {"pools": [{"pool_name": "fast", "agents": ["x*"]}]}
    names = [pool["name"] for pool in routes.ask("PUT", "/pools", json=body).json()]
    assert "fast" in names
    assert "fast" in paths.pools_file().read_text()
    assert routes.service.file_problems == []
    assert "pools[0]" in routes.refused(422, "PUT", "/pools", json={"pools": [{"pool_name": 3}]})


def test_slots_are_switched_off_and_on(routes: Routes) -> None:
    view = routes.post(f"/agents/{AGENT}/slots", slots=[0], enabled=False)
    assert view["id"] == AGENT
    (trial,) = submit(routes)["trials"]
    assert "slot 0 of agent here is disabled" in trial["waiting_for"]
    routes.post(f"/agents/{AGENT}/slots", enabled=True)
    assert routes.get("/trials/1")["waiting_for"] is None


def test_a_trial_is_killed_and_its_experiment_answers_changes(routes: Routes) -> None:
    submit(routes)
    view = routes.post("/experiments/1/details", name="new", add_labels=["x"])
    assert (view["name"], view["config"]["labels"]) == ("new", ["x"])
    assert routes.post("/trials/1/kill")["id"] == 1
    assert "signal_gang" in routes.bench.commands() or "kill_gang" in routes.bench.commands()


def test_wrong_fields_are_named_with_their_paths(routes: Routes) -> None:
    submit(routes)
    path = "/experiments/1/resources"
    assert "priority: got 'x'" in routes.refused(422, "POST", path, json={"priority": "x"})
    assert "expected" not in routes.refused(422, "POST", path, json=[1])
    words = routes.refused(400, "POST", path, content=b'{"priority": "\\ud800"}')
    assert "the body is no JSON" in words


def test_changes_of_the_queue_are_made_together_or_tried(routes: Routes) -> None:
    submit(routes)
    submit(routes)

    def change(priority: int, **options: Any) -> list[tuple[int, int]]:
        request = {"kind": "change_resources", "experiment_id": 2, "priority": priority}
        move = {"kind": "move_in_queue", "experiment_id": 1, "behind": 2}
        changes = [{"where": "a", "request": request}, {"where": "b", "request": move}]
        views: Any = routes.post("/queue", changes=changes, **options)
        return [(view["id"], view["priority"]) for view in views]

    assert change(7, dry_run=True) == [(2, 42), (1, 42)]
    assert change(7) == [(2, 7), (1, 7)]
    wrong = [{"where": "--x", "request": {"kind": "move_in_queue", "experiment_id": 9}}]
    for dry_run in (True, False):
        body = {"changes": wrong, "dry_run": dry_run}
        assert routes.ask("POST", "/queue", json=body).status_code in (404, 422)


def test_the_contract_says_which_fields_a_body_needs(routes: Routes) -> None:
    paths_of = routes.get("/openapi.json")["paths"]
    retention = paths_of["/api/v1/experiments/{experiment_id}/retention"]["post"]
    (parameter,) = retention["parameters"]
    assert (parameter["name"], parameter["in"]) == ("experiment_id", "path")
    schema = retention["requestBody"]["content"]["application/json"]["schema"]
    names = {"save_experiment_best", "save_trial_best", "save_trial_latest"}
    assert set(schema["required"]) == names
    assert set(schema["properties"]) == names | {"dry_run"}
    assert schema["$id"] == "SetRetention"
    pause = paths_of["/api/v1/experiments/{experiment_id}/pause"]["post"]
    schema = pause["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == []
    assert {"put", "get"} <= paths_of["/api/v1/templates/{name}"].keys()
