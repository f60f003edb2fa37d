"""A version in MLflow's registry, by its own library."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import ModelOrder
from det_jupyter.trackers.service import TrackerRefused, Unreachable

pytestmark = [
    pytest.mark.skipif(find_spec("mlflow") is None, reason="no mlflow"),
    pytest.mark.filterwarnings("default"),  # MLflow's own
]


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelOrder:
    """An order for a folder with a checkpoint, to MLflow's files."""
    import_module("det_jupyter.trackers.mlflow_runs")  # sets what is not set: before it is here
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "pushed"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "weights").write_bytes(b"w")
    (folder / "model.json").write_text("{}")
    facts: dict[str, Any] = {
        "model": {"name": "digits", "description": "reads digits", "labels": ["vision"]},
        "version": {
            "number": 3, "comment": "dropout", "labels": ["best"], "aliases": ["production"],
        },
        "origin": {
            "checkpoint": "uuid-1", "steps_completed": 70, "metric": {"error": 0.25},
            "hyperparameters": {"lr": 0.1},
        },
    }  # fmt: skip
    return ModelOrder(
        tracking_uri=(tmp_path / "mlruns").as_uri(), is_named=True, secrets=["s3cret"],
        name="digits", folder=str(folder), has_checkpoint=True, facts=facts,
    )  # fmt: skip


def test_a_version_is_registered_once_with_its_files_and_alias(order: ModelOrder) -> None:
    import mlflow
    from mlflow import MlflowClient

    from det_jupyter.trackers.mlflow_models import register

    assert register(order) == "1"
    assert register(order) == "1"
    client = MlflowClient(order.tracking_uri)
    (version,) = client.search_model_versions("name = 'digits'")
    assert (version.description, version.tags["best"]) == ("dropout", "")
    assert client.get_model_version_by_alias("digits", "production").version == version.version
    assert client.get_registered_model("digits").description == "reads digits"
    run = client.get_run(version.run_id)
    assert (run.data.params, run.data.metrics) == ({"lr": "0.1"}, {"error": 0.25})
    mlflow.set_tracking_uri(order.tracking_uri)
    copied = Path(mlflow.artifacts.download_artifacts("models:/digits/1"))
    assert (copied / "checkpoint" / "weights").read_bytes() == b"w"
    assert "det_jupyter" in mlflow.models.Model.load(str(copied)).flavors
    facts = {**order.facts, "origin": {**order.facts["origin"], "checkpoint": "uuid-2"}}
    assert register(order.model_copy(update={"facts": facts})) == "2"
    assert str(client.get_model_version_by_alias("digits", "production").version) == "2"


def changed(order: ModelOrder, part: str, **values: Any) -> ModelOrder:
    facts = {**order.facts, part: {**order.facts[part], **values}}
    return order.model_copy(update={"facts": facts})


def test_names_that_mlflow_does_not_take_are_told_before_files_are_sent(
    order: ModelOrder,
) -> None:
    from mlflow import MlflowClient

    from det_jupyter.trackers.mlflow_models import register

    client = MlflowClient(order.tracking_uri)
    for name in ("a:b", "a%b"):
        with pytest.raises(TrackerRefused, match=r"refuses: .*cannot contain"):
            register(order.model_copy(update={"name": name}))
    assert client.get_experiment_by_name("det_jupyter") is None
    odd = order.model_copy(update={"name": "o'brien"})
    odd = changed(odd, "version", labels=["a+b", "det_jupyter.checkpoint"])
    assert register(odd) == register(odd) == "1"
    version = client.get_model_version("o'brien", "1")
    assert version.tags == {"a_b": "", "det_jupyter.checkpoint": "uuid-1"}
    refused = changed(order, "version", aliases=["v1"])
    with pytest.raises(TrackerRefused, match=r"^models:/digits/1 is registered, but not as 'v1'"):
        register(refused)


def test_weights_alone_are_another_version_than_the_checkpoint(order: ModelOrder) -> None:
    from det_jupyter.trackers.mlflow_models import register

    weights = order.model_copy(update={"has_checkpoint": False})
    assert [register(each) for each in (order, weights, order, weights)] == ["1", "2", "1", "2"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("s3cret"), "the files cannot be sent: OSError"),
        (ModuleNotFoundError(name="boto3"), "the package boto3 is not installed"),
    ],
)
def test_the_run_of_files_that_cannot_be_sent_has_failed(
    order: ModelOrder, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    from mlflow import MlflowClient

    from det_jupyter.trackers.mlflow_models import register

    def fail(*given: Any) -> None:
        raise error

    monkeypatch.setattr(MlflowClient, "log_artifacts", fail)
    with pytest.raises(TrackerRefused, match=said) as caught:
        register(order)
    assert "s3cret" not in str(caught.value)
    client = MlflowClient(order.tracking_uri)
    number = client.get_experiment_by_name("det_jupyter").experiment_id
    (run,) = client.search_runs([number])
    assert run.info.status == "FAILED"
    assert client.search_model_versions("name = 'digits'") == []


def test_an_mlflow_that_cannot_be_reached_is_named_without_secrets(order: ModelOrder) -> None:
    from det_jupyter.trackers.mlflow_models import register

    away = order.model_copy(update={"tracking_uri": "http://ann:s3cret@localhost:9"})
    with pytest.raises(Unreachable, match="cannot be reached") as caught:
        register(away)
    assert "s3cret" not in str(caught.value)


def test_files_are_not_written_where_an_unnamed_server_says(
    order: ModelOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from det_jupyter.trackers import mlflow_models

    monkeypatch.setattr(mlflow_models, "is_misplaced", lambda artifacts, uri: True)
    with pytest.raises(TrackerRefused, match=r"wants the files in a folder of this computer"):
        mlflow_models.register(order.model_copy(update={"is_named": False}))


def test_the_process_answers_in_one_line_and_leaves_nothing_here(
    order: ModelOrder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from det_jupyter.client.handles import mlflow_push

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert mlflow_push._send(order) == {"version": "1"}
    assert {path.name for path in tmp_path.iterdir()} == {"mlruns", "pushed"}
