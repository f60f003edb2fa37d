"""The registry of models through the master's routes: handles, verbs, and the SDK of compat/."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.client import Checkpoint, Client, Experiment
from det_jupyter.client.answers.answering import answer
from det_jupyter.client.handles import mlflow_push
from det_jupyter.client.handles.models import FoundModels, Model, create_model_in, find_models
from det_jupyter.config.tracker_section import OF_USER
from det_jupyter.contract.documents.patches import Document
from det_jupyter.contract.messages import ModelOrder
from det_jupyter.errors import ConfigError, Conflict, DetError, NotFound, UsageError
from det_jupyter.master.service.committing.restoring import restore_machine
from tests.integration.in_process import Det, client, det, routes
from tests.integration.routes_support import Routes

__all__ = ["client", "det", "routes"]  # fixtures


def digits(client: Client) -> Model:
    return Model(client, create_model_in(client, "digits", description="reads a digit").name)


def test_a_checkpoint_is_registered_found_by_its_alias_and_read(client: Client) -> None:
    model = digits(client)
    best = Experiment(client, 1).best_checkpoint()
    first = model.register_version("bad", comment="early")
    second = model.register_version(best, alias="production", metadata={"owner": "ada"})
    assert (first.number, second.number, best.uuid) == (1, 2, "good")
    found = Model(client, "digits").version("production")
    assert found.checkpoint.uuid == "good"
    assert found.checkpoint.hparams == {"lr": 0.1}
    assert (found.metadata, found.aliases) == ({"owner": "ada"}, ["production"])
    model.set_alias("production", first)
    assert [model.version(which).number for which in (None, 1, "2", "latest", "production")] == [
        2, 1, 2, 2, 1,
    ]  # fmt: skip
    assert repr(model).splitlines() == [
        "Model digits: reads a digit",
        "  digits version 1 (production): error 0.4000, experiment 1, trial 1, 100 batches, early",
        "  digits version 2: error 0.1000, experiment 1, trial 1, 50 batches",
    ]
    for wrong, said in (
        ({"checkpoint": 3}, "uuid: got 3, expected a checkpoint, or its uuid"),
        ({"checkpoint": "bad", "labels": 3}, "labels: got 3, expected words"),
        ({"checkpoint": "bad", "metadata": "x"}, "metadata: got 'x', expected values by name"),
        ({"checkpoint": "bad", "notes": 3}, "notes: got 3, expected text"),
    ):
        with pytest.raises(ConfigError, match=f"^{said}"):
            model.register_version(**wrong)
    with pytest.raises(NotFound, match=r"no version stable; it has 1, 2 and the aliases produ"):
        model.version("stable")


def test_a_registered_checkpoint_stays_until_its_version_is_deleted(
    client: Client, det: Det
) -> None:
    version = digits(client).register_version("good")
    for refused in (
        lambda: Experiment(client, 1).delete(),
        lambda: det("checkpoint", "rm", "good", "--yes"),
        lambda: det("checkpoint", "rm", "good", "--yes", "--glob", "*.pt"),
    ):
        with pytest.raises(Conflict, match="good is version 1 of model digits") as caught:
            refused()
        assert "\n" not in str(caught.value)
    assert "Nothing is deleted" not in det("model", "delete", "digits", "--version", "1", "--yes")
    assert Model(client, "digits").versions() == []
    det("checkpoint", "rm", "good", "--yes")
    with pytest.raises(NotFound, match="has no version yet"):
        print(version.view)


def test_models_are_found_edited_archived_and_renamed(client: Client) -> None:
    model = digits(client)
    create_model_in(client, "other", labels=["vision"])
    model.edit(add_labels=["vision", "good"], add_metadata={"n": [1]}, notes="long")
    assert [view.name for view in find_models(client, labels=["vision", "good"])] == ["digits"]
    assert [view.name for view in find_models(client, "READS digit")] == ["digits"]
    model.edit(name="figures")
    assert (model.name, model.notes, model.metadata) == ("figures", "long", {"n": [1]})
    model.archive()
    assert [each.name for each in FoundModels(client, find_models(client))] == ["other"]
    with pytest.raises(Conflict, match="model figures is archived; unarchive it"):
        model.register_version("good")
    model.unarchive()
    model.delete()
    assert repr(FoundModels(client, find_models(client))).splitlines()[1].startswith("other")
    for name in ("a/b", "", ".."):
        with pytest.raises(ConfigError, match="name: got"):
            create_model_in(client, name)
    strange = create_model_in(client, "ä %2F.b?c#d")
    assert Model(client, strange.name).view.id == strange.id


def test_lines_of_the_shell_do_the_same(client: Client, det: Det) -> None:
    assert "No models" in det("model")
    made = det("m", "create", "digits", "--label", "vision", "--metadata", "n=[1]")
    assert "created" in made
    line = det("m", "register-version", "digits", "--experiment", "1", "--alias", "production")
    assert line == (
        "Registered digits version 1 (production): error 0.1000, experiment 1, trial 1, "
        "50 batches."
    )
    det("m", "register-version", "digits", "bad", "--comment", "early", "--name", "first")
    rows = json.loads(det("m", "list-versions", "digits", "--json"))
    assert [(row["UUID"], row["Value"], row["Comment"]) for row in rows] == [
        ("good", 0.1, ""),
        ("bad", 0.4, "early"),
    ]
    assert "production of model digits is version 2" in det("m", "alias", "digits", "production")
    described = json.loads(det("m", "describe", "digits", "--version", "production", "--json"))
    assert (described["number"], described["checkpoint"]["uuid"]) == (2, "bad")
    assert "early" in det("m", "describe", "digits", "--version", "2")
    det("m", "edit", "digits", "--version", "2", "--comment", "late", "--add-label", "x")
    det("m", "edit", "digits", "--description", "reads", "--remove-metadata", "n")
    assert "late" in det("m", "describe", "digits")
    assert det("m", "list", "reads", "-q") == "digits"
    assert "no alias" in det("m", "unalias", "digits", "production")
    with pytest.raises(UsageError, match="nothing to change"):
        det("m", "edit", "digits")
    with pytest.raises(UsageError, match="--comment is of a version; give --version"):
        det("m", "edit", "digits", "--comment", "x")
    det("m", "archive", "digits")
    assert "No models" in det("m", "list")
    assert "digits" in det("m", "list", "--archived")


def test_a_button_registers_and_makes_a_model_if_there_is_none(client: Client) -> None:
    asked = {"type": "register", "uuid": "good", "model": " digits "}
    assert answer(client, 1, asked) | {"request": ""} == {
        "type": "register", "request": "", "error": "", "model": "digits", "number": 1,
    }  # fmt: skip
    assert "is version 1 of model digits already" in answer(client, 1, asked)["error"]
    assert "expected 1 to 100 characters" in answer(client, 1, asked | {"model": ""})["error"]
    shown = answer(client, 1, {"type": "checkpoints"})
    assert (shown["registered"], shown["models"]) == ({"good": ["digits 1"]}, ["digits"])


def test_a_version_is_pushed_into_a_new_folder(
    client: Client, det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "code", lambda experiment_id: {"Cell In[5]": "net = Net()"})
    digits(client).register_version("good", comment="best", alias="production")
    folder = tmp_path / "given" / "away"
    det("model", "push", "digits", "--version", "production", "--to", str(folder))
    assert sorted(path.name for path in folder.rglob("*")) == [
        "README.md", "cell_5.py", "checkpoint", "code", "config.yaml", "metadata.json",
        "model.json", "state_dict.pt",
    ]  # fmt: skip
    facts = json.loads((folder / "model.json").read_text())
    assert (facts["model"]["name"], facts["version"]["number"]) == ("digits", 1)
    assert facts["origin"]["hyperparameters"] == {"lr": 0.1}
    assert "# digits, version 1" in (folder / "README.md").read_text()
    with pytest.raises(Conflict, match="there are files already"):
        det("model", "push", "digits", "--to", str(folder))
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    network = torch.nn.Linear(2, 1)
    monkeypatch.setattr(Checkpoint, "load", lambda self: network)
    weights = tmp_path / "weights"
    det("model", "push", "digits", "--to", str(weights), "--safetensors")
    read = safetensors.load_file(weights / "model.safetensors")
    assert torch.equal(read["weight"], network.weight)
    assert not (weights / "checkpoint").exists()


def test_a_version_is_pushed_as_hugging_face_has_it(
    client: Client, det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")

    class Words:
        def save_pretrained(self, folder: Path) -> None:
            (folder / "tokenizer.json").write_text("{}")

    class Net(torch.nn.Linear):  # type: ignore[misc, name-defined]  # torch is imported late
        processing_class = Words()

        def save_pretrained(self, folder: Path) -> None:
            (folder / "config.json").write_text("{}")

    Net.__module__ = "transformers.models.net"
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(Net=Net))
    model = digits(client)
    model.edit(add_labels=["vision"])
    model.register_version("good")
    monkeypatch.setattr(Checkpoint, "load", lambda self: Net(2, 1))
    monkeypatch.chdir(tmp_path)
    said = det("model", "push", "digits", "--to", "hf")
    assert said == "Wrote version 1 of model digits to digits-1"
    assert sorted(path.name for path in Path("digits-1").iterdir()) == [
        "README.md", "config.json", "config.yaml", "model.json", "tokenizer.json",
    ]  # fmt: skip
    card = Path("digits-1/README.md").read_text()
    front = (
        "---\nlibrary_name: transformers\ntags: [det_jupyter, vision]\n---\n\n# digits, version 1"
    )
    assert card.startswith(front)
    assert 'from transformers import Net\n\nNet.from_pretrained(".")' in card
    monkeypatch.delitem(sys.modules, "transformers")  # as if its class were the user's own
    det("model", "push", "digits", "--to", "hf", "-o", "own")
    card = Path("own/README.md").read_text()
    assert card.startswith("---\ntags: [det_jupyter, vision]\n---\n")
    assert '`Net.from_pretrained(".")` loads it; its class is in the code' in card
    monkeypatch.setattr(Checkpoint, "load", lambda self: torch.nn.Linear(2, 1))
    det("model", "push", "digits", "--to", "hf", "-o", "plain")
    assert sorted(path.name for path in Path("plain").iterdir()) == [
        "README.md", "config.yaml", "model.json", "model.safetensors",
    ]  # fmt: skip
    card = Path("plain/README.md").read_text()
    assert card.startswith("---\ntags: [det_jupyter, vision]\n---\n")
    assert "`safetensors.torch.load_file` reads the weights." in card


def test_a_push_that_fails_leaves_nothing(
    client: Client, det: Det, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "code", lambda experiment_id: {"Cell In[5]": "net = Net()"})
    model = digits(client)
    path = Path(model.register_version("good").checkpoint.view.path)
    before = sorted(path.iterdir())

    def refused(to: Path, *words: str) -> str:
        with pytest.raises(DetError) as caught:
            det("model", "push", "digits", "--to", str(to), *words)
        return str(caught.value)

    assert "in the checkpoint's own folder" in refused(path / "within" / "it")
    with pytest.raises(Conflict, match="in the checkpoint's own folder"):
        model.version().checkpoint.download(path / "within")
    assert sorted(path.iterdir()) == before
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "files", dict.fromkeys(map(str, before), 0))
        assert "has 0 bytes, and had 1 when it was saved" in refused(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert "cannot be written: [Errno 36] File name too long" in refused(tmp_path / ("x" * 300))
    (tmp_path / "file").write_text("")
    assert "cannot be written: [Errno 20] Not a directory" in refused(tmp_path / "file" / "in")
    (tmp_path / "empty").mkdir()

    def fail(error: BaseException) -> Callable[..., None]:
        def write(code: Any, folder: Path) -> None:
            Path(folder).mkdir()
            raise error

        return write

    full = shutil.Error([("a", "b", "[Errno 28] No space left on device"), ("c", "d", "e")])
    monkeypatch.setattr("det_jupyter.client.handles.pushing.Code.write", fail(full))
    said = refused(tmp_path / "empty")
    assert said.endswith("empty: cannot be written: [Errno 28] No space left on device")
    assert [*(tmp_path / "empty").iterdir()] == []
    monkeypatch.setattr("det_jupyter.client.handles.pushing.Code.write", fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        det("model", "push", "digits", "--to", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    strange = torch.nn.Module()
    values = torch.zeros(3)  # safetensors cannot tell which of its halves has all
    strange.register_buffer("first", values[:2])
    strange.register_buffer("last", values[1:])
    monkeypatch.setattr(Checkpoint, "load", lambda self: strange)
    assert "cannot be written as safetensors" in refused(tmp_path / "new", "--safetensors")
    for loaded in ({"weights": 1}, torch.nn.Sequential()):
        monkeypatch.setattr(Checkpoint, "load", lambda self, loaded=loaded: loaded)
        assert "has no torch model with weights" in refused(tmp_path / "new", "--safetensors")
    assert not (tmp_path / "new").exists()


def test_nothing_is_sent_to_an_mlflow_that_is_not_named(
    client: Client, det: Det, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits(client).register_version("good")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def push(*words: str) -> str:
        with pytest.raises(DetError) as caught:
            det("model", "push", "digits", *words)
        return str(caught.value)

    assert push("--to", "mlflow").startswith(
        "det model push: tracking_uri: neither it nor MLFLOW_TRACKING_URI is set, expected http"
    )
    assert "got ********, expected http" in push("--to", "mlflow", "--tracking-uri", "ftp://a:b@c")
    clear = push("--to", "mlflow", "--tracking-uri", "http://ann:x@mlflow.example.org")
    assert "expected https://, or a tunnel" in clear
    assert "ann" not in clear
    for host in ("169.254.169.254", "0xa9fea9fe", "metadata.google.internal"):
        said = push("--to", "mlflow", "--tracking-uri", f"http://{host}/latest")
        assert "one of clouds' metadata, to which nothing is sent unless MLFLOW_" in said
    monkeypatch.setattr(mlflow_push, "find_spec", lambda name: None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert "pip install 'det-jupyter[mlflow]'" in push("--to", "mlflow")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hf", "--tracking-uri", "x"), "tracking_uri: it is for mlflow"),
        (("folder", "-o", "x"), "folder: it is for hf; elsewhere `to` is the folder"),
        (("hf", "--safetensors"), "safetensors: hf has the weights so already; leave it out"),
        (("mlfow",), "to: got 'mlfow', expected mlflow, or for a folder ./mlfow"),
        (("MLflow",), "to: got 'MLflow', expected mlflow, or for a folder ./MLflow"),
        (("HF",), "to: got 'HF', expected hf, or for a folder ./HF"),
        (("hugging-face",), "to: got 'hugging-face', expected hf, or for a folder ./hugging-face"),
    ],
)
def test_arguments_for_another_layout_are_refused(
    client: Client, det: Det, words: tuple[str, ...], said: str
) -> None:
    digits(client).register_version("good")
    with pytest.raises(UsageError) as caught:
        det("model", "push", "digits", "--to", *words)
    assert str(caught.value) == f"det model push: {said}"


def test_credentials_go_only_to_the_mlflow_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_USER:
        monkeypatch.setenv(name, "secret")
    order = ModelOrder(
        tracking_uri="https://mlflow.example.org", is_named=True, secrets=["secret"],
        name="digits", folder="/x", has_checkpoint=True, facts={},
    )  # fmt: skip
    assert mlflow_push.environment(order) is os.environ
    for other in (
        order.model_copy(update={"is_named": False}),
        order.model_copy(update={"tracking_uri": "http://mlflow.example.org"}),
    ):
        hidden = mlflow_push.environment(other)
        assert (hidden["HOME"], hidden["NETRC"]) == (os.devnull, os.devnull)
        assert not {*OF_USER} - {"NETRC"} & hidden.keys()


def test_a_restart_finds_what_was_registered(client: Client, routes: Routes) -> None:
    digits(client).register_version("good", alias="production")
    before = client.model("digits")
    routes.service.machine.take_over(restore_machine(routes.service.store))
    assert client.model("digits") == before
    with pytest.raises(DetError, match="good is version 1 of model digits already"):
        Model(client, "digits").register_version("good")


def test_pages_follow_the_registry(client: Client, routes: Routes) -> None:
    from det_jupyter.reader.model_sources import model_source, models_source
    from tests.unit.reader.reader_world import Still

    replica = Still(routes.service.store.path)
    listed, page = models_source(replica), model_source(replica, 1)
    stale: list[str] = []
    listed.start(lambda: stale.append("list"))
    page.start(lambda: stale.append("page"))
    replica.turn()
    stale.clear()
    assert listed.make() == {"models": []}
    with pytest.raises(NotFound, match="it may have been deleted"):
        page.make()
    model = digits(client)
    model.register_version("good", alias="production", metadata={"owner": "ada"})
    model.register_version("bad")
    replica.turn()
    assert stale == ["list", "page"]
    made: Document | None = listed.make()
    assert made is not None
    (line,) = made["models"]
    assert (line["latest"], line["aliases"]) == ("version 2 · error 0.4000", ["production: 1"])
    shown = page.make()
    assert shown is not None
    newest, first = shown["versions"]
    assert (newest["number"], newest["value"], newest["is_best"]) == (2, "0.4000", False)
    assert (first["aliases"], first["metadata"]) == (["production"], ["owner: ada"])
    assert (first["is_best"], first["experiment"], first["steps"]) == (
        True, "digits", "50 batches",
    )  # fmt: skip
    assert "model('digits').version('production').checkpoint.load()" in first["load"]
    assert (shown["hparams"], shown["no_versions"]) == ([], "")
    stale.clear()
    Experiment(client, 1).set_name("other")  # versions show it
    replica.turn()
    assert stale == ["list", "page"]
    replica.close()


@pytest.mark.filterwarnings("ignore:this `determined` is det_jupyter")
def test_the_sdk_of_determined_registers_and_finds(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "compat")
    from determined.experimental import client as sdk
    from determined.experimental.client import _determined

    monkeypatch.setattr(_determined, "client", lambda: client)
    model = sdk.create_model("digits", "reads", {"n": 1}, ["vision"])
    assert model.get_version() is None
    version = model.register_version("good")
    model.register_version("bad")
    assert version.checkpoint.uuid == "good"
    assert [each.model_version for each in model.get_versions()] == [2, 1]
    newest = model.get_version()
    assert newest is not None
    assert (newest.model_version, model.get_version(7)) == (2, None)
    model.add_metadata({"k": "v"})
    model.remove_metadata(["n"])
    model.set_labels(["a", "b"])
    model.set_description("reads digits")
    version.set_notes("noted")
    assert (model.metadata, model.labels, version.notes) == ({"k": "v"}, ["a", "b"], "noted")
    assert sdk.get_model("digits").model_id == sdk.get_model(model.model_id).model_id == 1
    sdk.create_model("other")
    order = sdk.OrderBy.DESCENDING
    assert [each.name for each in sdk.get_models(order_by=order)] == ["other", "digits"]
    assert sdk.Determined().get_model_labels() == ["a", "b"]
    model.archive()
    assert model.archived
    version.delete()
    assert [each.model_version for each in model.list_versions()] == [2]
