"""Checkpoints of trainers of other libraries are loaded: their models, or what to do."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from det_jupyter import core, load_checkpoint
from det_jupyter.client.handles.checkpoint import Checkpoint
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.origin import LOAD_DATA_FILE, Origin, name_of_class
from det_jupyter.errors import CheckpointError
from tests.unit.integrations.contexts import new_context, runs_of, saved

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries


ONE_STEP: Any = {"max_steps": 1, "eval_strategy": "no"}


def load(*args: Any, **options: Any) -> Any:
    from det_jupyter.integrations.loading import load_model

    return load_model(*args, **options)


def last(context: core.Context) -> Path:
    """Return the folder of the last checkpoint."""
    return Path(saved(context)[-1].path)


def captured(folder: Path, source: str) -> tuple[dict[str, Any], Capsule]:
    """Return the names of a notebook's cells, and the capsule of its function `main`."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<cells>", "exec"), names)
    blobs = BlobStore(folder / "data" / "blobs")
    payload = blobs.put(cloudpickle.dumps((names["main"], {}), protocol=5))
    return names, Capsule(entrypoint="main", payload=payload, sources=blobs.put(b"{}"))


class TestLightning:
    @pytest.fixture(scope="class")
    def runs(self) -> Iterator[Any]:
        yield from runs_of("lightning")

    CELLS = """
import lightning.pytorch as L
import torch

class Net(L.LightningModule):
    def __init__(self, width, extra=None):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(width, 1)
    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def main():
    return Net(8)
"""

    def test_a_module_of_a_notebook_comes_with_the_checkpoint(
        self, runs: Any, tmp_path: Path
    ) -> None:
        names, capsule = captured(tmp_path, self.CELLS)
        net = names["main"]()
        context = new_context(tmp_path, capsule=capsule)
        runs.fit(context, module=net)
        folder = last(context).rename(tmp_path / "elsewhere")
        (tmp_path / "data").rename(tmp_path / "gone")
        model = load(folder)
        assert model.hparams.width == 8
        assert not model.training
        assert runs.torch.equal(model.net.weight, net.net.weight)

    @staticmethod
    def _write(runs: Any, folder: Path, model: Any) -> None:
        """Write a checkpoint as the callback does, of a model that is not trained."""
        Origin(trial_class=name_of_class(type(model)), library="lightning").write(folder)
        trainer = runs.L.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
        trainer.strategy.connect(model)
        trainer.save_checkpoint(folder / "lightning.ckpt", weights_only=False)

    def test_a_module_of_a_file_is_loaded_by_its_name(self, runs: Any, tmp_path: Path) -> None:
        trained = runs.Net()
        self._write(runs, tmp_path, trained)
        model = load(tmp_path)
        assert type(model) is runs.Net
        assert runs.torch.equal(model.net[0].weight, trained.net[0].weight)
        given = runs.Net().to("meta").to_empty(device="cpu")
        assert load(tmp_path, given) is given
        assert runs.torch.equal(given.net[0].weight, trained.net[0].weight)

    def test_arguments_that_were_not_saved_are_asked_for(self, runs: Any, tmp_path: Path) -> None:
        class Net(runs.Net):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.width = width

        self._write(runs, tmp_path, Net(8))
        with pytest.raises(CheckpointError, match=r"Net needs width, .*: load\(width=\.\.\.\)"):
            load(tmp_path, model_class=Net)
        assert load(tmp_path, model_class=Net, width=8).width == 8

    def test_an_argument_with_all_hyperparameters_is_not_asked_for(
        self, runs: Any, tmp_path: Path
    ) -> None:
        class Net(runs.Net):
            def __init__(self, hparams: dict[str, Any]) -> None:
                super().__init__()
                self.save_hyperparameters(hparams)

        self._write(runs, tmp_path, Net({"lr": 0.5}))
        assert load(tmp_path, model_class=Net).hparams.lr == 0.5

    def test_objects_of_own_classes_are_not_unpickled_unasked(
        self, runs: Any, tmp_path: Path
    ) -> None:
        net = captured(tmp_path, self.CELLS)[0]["Net"]
        extra = {3: runs.L.seed_everything}
        self._write(runs, tmp_path, net(8, extra))
        with pytest.raises(
            CheckpointError, match=r"would run code; .* load\(\.\.\., weights_only=False"
        ):
            load(tmp_path, model_class=net)
        assert load(tmp_path, model_class=net, weights_only=False).hparams.extra == extra

    def test_parts_of_ranks_are_joined_when_asked_for(self, runs: Any, tmp_path: Path) -> None:
        from torch.distributed.checkpoint.state_dict_saver import save

        trained = runs.Net()
        self._write(runs, tmp_path, trained)
        folder = tmp_path / "lightning.ckpt"
        state = runs.torch.load(folder, weights_only=True)
        folder.unlink()
        parts = {"state_dict": state.pop("state_dict"), "optimizer_0": {"lr": 0.1}}
        save(parts, checkpoint_id=folder, no_dist=True)
        runs.torch.save(state, folder / "meta.pt")
        for options in ({}, {"model": runs.Net()}):
            with pytest.raises(
                CheckpointError, match=r"in parts of ranks, .*load\(\.\.\., weights_only="
            ):
                load(tmp_path, **options)
        given = runs.Net()
        for model in (
            load(tmp_path, weights_only=False),
            load(tmp_path, given, weights_only=False),
        ):
            assert runs.torch.equal(model.net[0].weight, trained.net[0].weight)

    def test_a_module_that_is_built_with_its_trainer_is_to_be_given(
        self, runs: Any, tmp_path: Path
    ) -> None:
        class Net(runs.Net):
            def configure_model(self) -> None:
                assert self.trainer.strategy  # as for its mesh of devices

        self._write(runs, tmp_path, Net())
        with pytest.raises(
            CheckpointError, match=r"not attached .* if its configure_model .*l=\.\.\."
        ):
            load(tmp_path, model_class=Net)
        assert type(load(tmp_path, Net())) is Net

    def test_a_class_within_a_function_is_named(self, runs: Any, tmp_path: Path) -> None:
        class Inner(runs.Net):
            pass

        self._write(runs, tmp_path, Inner())
        with pytest.raises(CheckpointError, match=r"Inner is defined inside .*as model_class="):
            load(tmp_path)
        assert type(load(tmp_path, model_class=Inner)) is Inner


class TestTransformers:
    @pytest.fixture(scope="class")
    def runs(self) -> Iterator[Any]:
        yield from runs_of("transformers")

    def test_the_model_is_loaded_with_what_it_was_trained_with(
        self, runs: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        from det_jupyter.integrations.weights import write_weights

        context = new_context(tmp_path)
        made = runs.train(context, tmp_path / "out", processing_class=runs.tokenizer(), **ONE_STEP)
        model = load(last(context))
        assert type(model) is runs.GPT2LMHeadModel
        assert not model.training
        assert runs.torch.equal(model.lm_head.weight, made.model.lm_head.weight)
        assert model.processing_class("b a")["input_ids"] == [1, 0]
        pushed = tmp_path / "pushed"
        pushed.mkdir()
        assert write_weights(model, pushed, pretrained=True) is runs.GPT2LMHeadModel
        again = runs.GPT2LMHeadModel.from_pretrained(pushed)
        assert runs.torch.equal(again.lm_head.weight, made.model.lm_head.weight)
        assert (pushed / "tokenizer.json").exists()
        assert not (last(context) / "code").exists()  # the class is the library's
        assert load(last(context), device_map="meta").device.type == "meta"
        (last(context) / "tokenizer.json").write_text("{")
        assert load(last(context)).processing_class is None
        assert "the tokenizer or processor cannot be loaded" in caplog.text

    def test_a_model_that_it_cannot_build_is_asked_for(self, runs: Any, tmp_path: Path) -> None:
        context = new_context(tmp_path)
        made = runs.train(context, tmp_path / "out", model=runs.Plain(), **ONE_STEP)
        with pytest.raises(CheckpointError, match=r"Plain is no PreTrained.*: load\(model=\.\.\."):
            load(last(context))
        model = runs.Plain()
        assert load(last(context), model=model) is model
        assert runs.torch.equal(model.out.weight, made.model.out.weight)
        (last(context) / "model.safetensors").unlink()
        (last(context) / "zero_to_fp32.py").touch()
        with pytest.raises(CheckpointError, match=r"parts of ranks; .*`python zero_to_fp32\.py"):
            load(last(context), model=model)


class TestKeras:
    @pytest.fixture(scope="class")
    def runs(self) -> Iterator[Any]:
        yield from runs_of("keras")

    def test_the_model_is_loaded_compiled(self, runs: Any, tmp_path: Path) -> None:
        context = new_context(tmp_path)
        trained = runs.fit(context)
        model = load(last(context))
        assert (runs.weights(model) == runs.weights(trained)).all()
        assert model.loss == "mse"
        device = pytest.importorskip("torch").device("cpu")
        assert (runs.weights(load(last(context), device=device)) == runs.weights(trained)).all()
        with pytest.raises(CheckpointError, match=r"Keras has stored the model; leave out model="):
            load(last(context), model=trained)
        assert not (last(context) / "code").exists()

    CELLS = """
import keras

class Doubled(keras.layers.Layer):
    def call(self, x):
        return 2 * x

@keras.saving.register_keras_serializable("mine")
class Tripled(keras.layers.Layer):
    def call(self, x):
        return 3 * x

def loss(y, predicted):
    return keras.ops.mean(keras.ops.square(y - predicted))

def main():
    layers = keras.layers.Input((8,)), keras.layers.Dense(4), Doubled(), Tripled()
    model = keras.Sequential(layers)
    model.compile("adam", loss)
    return model
"""

    def test_layers_and_losses_of_a_notebook_come_with_the_checkpoint(
        self, runs: Any, tmp_path: Path
    ) -> None:
        names, capsule = captured(tmp_path, self.CELLS)
        context = new_context(tmp_path, capsule=capsule)
        trained = runs.fit(context, model=names["main"]())
        runs.keras.saving.get_custom_objects().clear()  # as in another process
        model = load(last(context))
        batch = runs.np.ones((2, 8), "float32")
        assert (model.predict(batch, verbose=0) == trained.predict(batch, verbose=0)).all()

    def test_a_layer_of_an_installed_module_is_imported(
        self, runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "own_layers.py").write_text(
            "import keras\n"
            "@keras.saving.register_keras_serializable('mine')\n"
            "class Doubled(keras.layers.Layer):\n"
            "    def call(self, x):\n"
            "        return 2 * x\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        doubled = importlib.import_module("own_layers").Doubled
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        runs.keras.Sequential([runs.keras.Input((8,)), doubled()]).save(folder / "model.keras")
        Origin(trial_class="keras:Sequential", library="keras").write(folder)
        runs.keras.saving.get_custom_objects().clear()  # as in another process
        monkeypatch.delitem(sys.modules, "own_layers")
        model = load(folder)
        assert type(model.layers[0]) is importlib.import_module("own_layers").Doubled

    def test_a_layer_within_a_function_is_named(self, runs: Any, tmp_path: Path) -> None:
        class Inner(runs.keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return x

        Inner.__module__ = "__main__"
        model = runs.keras.Sequential([runs.keras.Input((8,)), Inner()])
        model.save(tmp_path / "model.keras")
        Origin(trial_class="keras:Sequential", library="keras").write(tmp_path)
        with pytest.raises(CheckpointError, match=r"Inner: not found .*; give custom_objects="):
            load(tmp_path)
        assert type(load(tmp_path, custom_objects={"Inner": Inner}).layers[0]) is Inner


class TestAccelerate:
    @pytest.fixture(scope="class")
    def runs(self) -> Iterator[Any]:
        yield from runs_of("accelerate")

    def test_weights_are_loaded_into_the_model_that_is_given(
        self, runs: Any, tmp_path: Path
    ) -> None:
        context = new_context(tmp_path)
        trained = runs.train(context)
        with pytest.raises(CheckpointError, match=r"not how a model is built; .* load\(model="):
            load(last(context))
        model = runs.new_model()
        assert load(last(context), model) is model
        assert not model.training
        assert runs.torch.equal(runs.weights(model), runs.weights(trained))
        with pytest.raises(CheckpointError, match=r"it has 1\.weight, the checkpoint not"):
            load(last(context), runs.torch.nn.Sequential(model[0], runs.torch.nn.Linear(4, 4)))
        with pytest.raises(CheckpointError, match=r"not the one that was saved: .*size mismatch"):
            load(last(context), runs.torch.nn.Sequential(runs.torch.nn.Linear(3, 3)))

    def test_several_models_ddp_and_tied_weights_are_loaded(
        self, runs: Any, tmp_path: Path
    ) -> None:
        save = pytest.importorskip("safetensors.torch").save_file
        one = runs.torch.ones(2, 2)
        save({"module.0.weight": one}, tmp_path / "model.safetensors")
        save({"0.weight": 2 * one}, tmp_path / "model_1.safetensors")
        Origin(trial_class="", library="accelerate").write(tmp_path)
        models = [self._tied(runs.torch.nn) for _ in range(2)]
        with pytest.raises(CheckpointError, match=r"of 2 models: load\(model=\[\.\.\.\]\)"):
            load(tmp_path, models[0])
        load(tmp_path, models)
        assert [each[1].weight.mean().item() for each in models] == [1, 2]
        (tmp_path / "model_1.safetensors").unlink()
        wrapper = runs.torch.nn.Module()
        wrapper.module = runs.torch.nn.Linear(2, 2, bias=False)
        save({"module.weight": 3 * one}, tmp_path / "model.safetensors")  # not of DDP
        assert load(tmp_path, wrapper).module.weight.mean() == 3

    def test_of_weights_of_another_model_the_first_are_named(
        self, runs: Any, tmp_path: Path
    ) -> None:
        save = pytest.importorskip("safetensors.torch").save_file
        linear, sequential = runs.torch.nn.Linear, runs.torch.nn.Sequential
        one = runs.torch.ones(2, 2)
        models = [sequential(*(linear(2, 2, bias=False) for _ in range(num))) for num in (1, 5)]
        for num, given, said in (
            (5, models[0], [f"the checkpoint has {index}.weight, it not" for index in (1, 2, 3)]),
            (1, models[1], [f"it has {index}.weight, the checkpoint not" for index in (1, 2, 3)]),
        ):
            weights = {f"{index}.weight": one.clone() for index in range(num)}
            save(weights, tmp_path / "model.safetensors")
            Origin(trial_class="", library="accelerate").write(tmp_path)
            with pytest.raises(CheckpointError) as raised:
                load(tmp_path, given)
            assert str(raised.value) == (
                f"{tmp_path}: the given model is not the one that was saved: {'; '.join(said)}"
            )

    def test_whole_weights_are_loaded_also_if_deepspeed_has_left_its_script(
        self, runs: Any, tmp_path: Path
    ) -> None:
        save = pytest.importorskip("safetensors.torch").save_file
        Origin(trial_class="", library="accelerate").write(tmp_path)
        model = runs.torch.nn.Linear(2, 2, bias=False)
        with pytest.raises(CheckpointError, match=r"there is no model\.safetensors with weights"):
            load(tmp_path, model)
        (tmp_path / "zero_to_fp32.py").touch()
        with pytest.raises(CheckpointError, match=r"in parts of ranks"):
            load(tmp_path, model)
        save({"weight": 3 * runs.torch.ones(2, 2)}, tmp_path / "model.safetensors")
        assert load(tmp_path, model).weight.mean() == 3

    @staticmethod
    def _tied(nn: Any) -> Any:
        first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        second.weight = first.weight
        return nn.Sequential(first, second)

    def test_weights_in_parts_of_ranks_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "pytorch_model_fsdp_0").mkdir()
        Origin(trial_class="", library="accelerate").write(tmp_path)
        with pytest.raises(
            CheckpointError, match=r"parts of ranks; .*`accelerate merge-weights py"
        ):
            load(tmp_path)


class TestDeepSpeed:
    """Its files are read without it."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        pytest.importorskip("torch")
        (tmp_path / "engine").mkdir()
        Origin(trial_class="", library="deepspeed").write(tmp_path)
        return tmp_path

    def test_whole_weights_are_loaded_into_the_model_that_is_given(self, folder: Path) -> None:
        import torch

        state = {"module": {"weight": torch.full((1, 2), 3.0)}, "det_jupyter": {"epoch": 1}}
        file = folder / "engine" / "mp_rank_00_model_states.pt"
        torch.save(state, file)
        model = torch.nn.Linear(2, 1, bias=False)
        view: Any = SimpleNamespace(state="COMPLETED", uuid=folder.name, path=str(folder))
        checkpoint = Checkpoint(view, folder / "data")
        assert checkpoint.load(model=model).weight.tolist() == [[3.0, 3.0]]
        torch.nn.init.zeros_(model.weight)
        assert load_checkpoint(folder, model=model).weight.tolist() == [[3.0, 3.0]]
        torch.save({**state, "det_jupyter": Path("of another class")}, file)
        with pytest.raises(
            CheckpointError, match=r"would run code; .* load\(\.\.\., weights_only=False"
        ):
            load(folder, model)
        assert load(folder, model, weights_only=False) is model

    def test_weights_in_parts_of_ranks_are_named(self, folder: Path) -> None:
        with pytest.raises(
            CheckpointError, match=r"parts of ranks; .*`python zero_to_fp32\.py \. F"
        ):
            load(folder, model=None)

    def test_engines_of_a_trial_are_loaded_in_their_order(self, folder: Path) -> None:
        import torch

        (folder / "engine").rmdir()
        models = [torch.nn.Linear(1, 1, bias=False) for _ in range(11)]
        for index in range(11):
            (folder / f"model{index}").mkdir()
            state = {"module": {"weight": torch.full((1, 1), float(index))}}
            torch.save(state, folder / f"model{index}" / "mp_rank_00_model_states.pt")
        load(folder, models)
        assert [model.weight.item() for model in models] == list(range(11))


def test_checkpoints_of_others_are_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(CheckpointError, match=r"with an earlier det_jupyter, load the files"):
        load(tmp_path)
    Origin(trial_class="m:Trial").write(tmp_path)
    with pytest.raises(CheckpointError, match=r"PyTorchTrial; .*load_checkpoint"):
        load(tmp_path)
    file = tmp_path / LOAD_DATA_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"library": "jax"}))
    with pytest.raises(CheckpointError, match=r"'jax' has saved it, .*install the version"):
        load(tmp_path)
    from det_jupyter.pytorch import load_trial_from_checkpoint_path

    with pytest.raises(CheckpointError, match=r"no trial: jax has saved it; .*load_checkpoint"):
        load_trial_from_checkpoint_path(tmp_path)


def test_a_library_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    Origin(trial_class="m:Net", library="keras").write(tmp_path)
    with pytest.raises(Exception, match=r"not installed; run .*'det-jupyter\[keras\]'"):
        load(tmp_path)
