"""An experiment from a configuration and a folder: what is checked, told and submitted."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client.submitting.submission import prepare, submit
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.errors import CaptureError, ConfigError, Problem
from tests.problems import said
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.verbs.cluster_samples import agent, cluster, pool, slot
from tests.unit.view.view_samples import experiment

MODEL = """
class Digits:
    def __init__(self, context):
        self.size = context.get_global_batch_size()
"""
TEXT = """
name: digits
entrypoint: model:Digits
searcher: {name: single, metric: error, max_length: {batches: 10}}
hyperparameters: {global_batch_size: 8}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "work"
    home.mkdir()
    (home / "model.py").write_text(MODEL)
    (home / "net.yaml").write_text(TEXT)
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def wired(tmp_path: Path) -> Wired:
    wired = Wired(
        experiments=experiment(id=12),
        cluster=cluster(pool(agent(slot(0)))),
        possible={"problem": {"path": "resources.slots_per_trial", "text": "got 9"}},
    )
    info = wired.client.session.info.model_copy(update={"data_dir": str(tmp_path / "data")})
    wired.client.session.info = info
    return wired


def prepared(wired: Wired, text: str = TEXT, **given: Any) -> Any:
    return prepare(wired.client, text, **given)


def problems_of(wired: Wired, text: str, **given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        prepared(wired, text, **given)
    return said(caught.value.problems)


def test_an_experiment_of_a_folder_has_a_copy_of_it(wired: Wired, folder: Path) -> None:
    ready = prepared(wired, context=folder, file="net.yaml", is_paused=True)
    assert sorted(ready.plan.files) == ["model.py", "net.yaml"]
    assert ready.options == {
        "python": sys.executable, "cwd": str(folder), "notebook": str(folder / "net.yaml"),
        "is_paused": True, "queue_anyway": False, "is_quiet": False,
    }  # fmt: skip
    assert not any("itself" in notice for notice in ready.notices)
    assert wired.asked == [], "nothing is sent"
    assert submit(wired.client, ready).id == 12
    method, path, body = wired.asked[-1]
    assert (method, path) == ("POST", "experiments")
    assert (body["config"]["name"], body["cwd"]) == ("digits", str(folder))
    capsule = body["capsule"]
    assert capsule["entrypoint"] == "model:Digits"
    assert capsule["notices"][0] == ready.plan.describe()
    installed = {"torch"} if find_spec("torch") else set()
    assert capsule["packages"].keys() >= {"Python"} | installed
    blobs = BlobStore(Path(wired.client.session.info.data_dir) / "blobs")
    assert json.loads(blobs.read(capsule["sources"])) == {}
    assert MODEL.encode() in blobs.read(capsule["context"]["blob"])
    assert capsule["context"]["num_files"] == 2


def test_without_a_context_ranks_work_in_the_folder_itself(wired: Wired, folder: Path) -> None:
    ready = prepared(wired)
    assert ready.plan is None
    assert ready.options["notebook"] is None
    assert ready.notices[-1] == (
        f"ranks work in {folder} itself, and read its files when they start; name the folder to "
        "have them work in a copy"
    )
    submit(wired.client, ready)
    capsule = wired.asked[-1][2]["capsule"]
    assert (capsule.get("context"), capsule["notices"]) == (None, [])


def test_all_problems_are_told_at_once_with_their_place(wired: Wired, folder: Path) -> None:
    text = TEXT.replace("model:Digits", "model:Digts").replace("error,", "error, divisor: x,")
    text += "resources: {slots_per_trial: 9}\n"
    assert problems_of(wired, text, context=folder, file="net.yaml") == [
        "net.yaml: line 3: entrypoint: model.py has no Digts; did you mean Digits? (classes and "
        "functions there: Digits)",
        "net.yaml: line 4: searcher.divisor: single does not have it; async_halving, "
        "adaptive_asha and optuna have",
        "net.yaml: line 5: hyperparameters.global_batch_size: got 8, expected at least "
        "resources.slots_per_trial (9)",
        "net.yaml: line 6: resources.slots_per_trial: got 9",
    ]
    anyway = problems_of(wired, text, context=folder, queue_anyway=True)
    assert not any("got 9" in each for each in anyway)


def test_a_batch_size_that_a_class_needs_is_asked_for(wired: Wired, folder: Path) -> None:
    text = TEXT.replace("hyperparameters: {global_batch_size: 8}", "")
    assert problems_of(wired, text, context=folder, queue_anyway=True) == [
        "hyperparameters.global_batch_size: missing; Digits.__init__ requires it: give the batch "
        "size of all slots together"
    ]


def test_a_refusal_of_the_master_has_the_lines_of_the_text(wired: Wired, folder: Path) -> None:
    ready = prepared(wired, file="net.yaml")

    def refuse(request: Any) -> Any:
        raise ConfigError([Problem("searcher.metric", "got nothing")])

    wired.client.create = refuse  # type: ignore[method-assign]
    with pytest.raises(ConfigError) as caught:
        submit(wired.client, ready)
    [problem] = said(caught.value.problems)
    assert problem.startswith("net.yaml")
    assert "line 4" in problem


def test_storage_that_everybody_may_write_is_told(wired: Wired, folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    for place, is_open in (("open", True), ("open/below", True), ("closed", False)):
        ready = prepared(wired, checkpoint_storage=str(folder / place))
        told = [each for each in ready.notices if "chmod o-w" in each]
        assert len(told) == is_open
        assert all(str(folder / "open") in each for each in told)
    # pytest's folders are in a folder that everybody may write to, but not replace files in.


def test_a_folder_that_is_gone_is_told(
    wired: Wired, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(CaptureError, match="not there any more; cd into one that is"):
        prepared(wired)
