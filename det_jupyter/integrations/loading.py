"""Trained models from the checkpoints that trainers of other libraries have saved.

    lightning      lightning.ckpt, by `load_from_checkpoint` of the module's class; its parts are
                   joined before, where each rank has saved its own (ModelParallelStrategy)
    keras          model.keras, by `keras.saving.load_model`
    transformers   what `save_pretrained` has written, by `from_pretrained` of the model's class
    accelerate     model.safetensors, model_1.safetensors: into models that are given
    deepspeed      mp_rank_00_model_states.pt of each engine: into models that are given

By default no pickle in these files is run: weights are read as safetensors, by `weights_only=True`
or by Keras' safe mode. The class of a model may be in captured code, which is run
(origin_code.py).
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any, cast
from zipfile import ZipFile

import torch
from torch import nn

from det_jupyter.contract.trial.origin import TRIALS, Origin
from det_jupyter.contract.trial.origin_code import find_class, import_class, names_in_code
from det_jupyter.contract.values.text import error_line, one_line
from det_jupyter.errors import CheckpointError, DetError
from det_jupyter.integrations import require
from det_jupyter.integrations.common import own_names

logger = logging.getLogger(__name__)

LIGHTNING_FILE = "lightning.ckpt"
KERAS_FILE = "model.keras"
DEEPSPEED_TAG = "engine"  # DeepSpeed's name of a folder within a folder of checkpoints
_JOINS_ZERO = (
    "`python zero_to_fp32.py . FOLDER` writes those of ZeRO into one file; it runs pickles"
)
_RUN_PICKLES = "weights_only=False"
_GIVE_CLASS = "give the class as model_class="
_GIVE_MODEL = "give the model, built as for the training: load(model=...)"
_PROCESSORS = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def load_model(
    path: str | Path,
    model: nn.Module | Sequence[nn.Module] | None = None,
    *,
    model_class: type | None = None,
    device: str | torch.device | None = None,
    data_dir: Path | None = None,
    **options: Any,
) -> Any:
    """Return the trained model of a checkpoint, ready to evaluate.

    Args:
        path: Folder of the checkpoint.
        model: The model to load the weights into, for accelerate, DeepSpeed, and models that
            Lightning and transformers cannot build; for accelerate a sequence if several models
            were prepared.
        model_class: The model's class. By default the one that was captured or is imported.
        device: The device to move the model to. By default a given model stays on its device,
            Keras chooses, and others are on the CPU, unless `options` name another device.
        data_dir: Folder into which captured local modules are unpacked; by default a folder that
            is removed when this process ends.
        options: For `load_from_checkpoint`, `keras.saving.load_model` or `from_pretrained`.

    Returns:
        The model. One of transformers has the tokenizer or processor that was saved with it as
        `processing_class`, else None there.

    Raises:
        CheckpointError: The checkpoint is damaged, or its model cannot be loaded here.
        DetError: The library is not installed, or too old.
    """
    path = Path(path)
    saved = _Saved(
        path=path,
        origin=Origin.read(path),
        data_dir=data_dir,
        given_class=model_class,
        runs_pickles=options.get("weights_only") is False,
    )
    try:
        return saved.load(model, device, options)
    except DetError:
        raise
    except Exception as error:  # the library and the user's classes may raise anything
        raise CheckpointError(
            f"{path}: {saved.origin.library} cannot load the model: {error_line(error)}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """A checkpoint that is loaded; see `load_model`."""

    path: Path
    origin: Origin
    data_dir: Path | None
    given_class: type | None
    runs_pickles: bool

    def load(self, model: Any, device: Any, options: Mapping[str, Any]) -> Any:
        library = self.origin.library
        if library == TRIALS:
            raise CheckpointError(
                f"{self.path} is of a PyTorchTrial; det_jupyter.load_checkpoint(path) returns it"
            )
        if library == "keras":
            if model is not None:
                raise CheckpointError(f"{self.path}: Keras has stored the model; leave out model=")
            return self._load_keras(device, options)
        if library not in _STATES:
            raise CheckpointError(
                f"{self.path}: {library!r} has saved it, which this version of det_jupyter does "
                "not load; install the version that its metadata.json names"
            )
        if model is None and library == "lightning":
            found = self._load_lightning(options)
        elif model is None and library == "transformers":
            found = self._load_transformers(options)
        else:
            found = self._fill(model, options)
        for each in found if isinstance(found, list | tuple) else [found]:
            each.eval()
            if device is not None:
                each.to(device)
        return found

    def _find_class(self) -> Any:
        if self.given_class is not None:
            return self.given_class
        return find_class(self.origin, self.path, self.data_dir, _GIVE_CLASS)

    def _load_lightning(self, options: Mapping[str, Any]) -> Any:
        require("lightning")
        from lightning.pytorch import LightningModule

        file = self.path / LIGHTNING_FILE
        class_ = self._find_class()
        if not self.runs_pickles:
            # Checked here, since Lightning before 2.6 would unpickle anything.
            state = self._read(file)
            hparams = state.get("hyper_parameters") or {}
            # An argument may have all of them: save_hyperparameters(hparams).
            given = {*hparams, state.get("hparams_name") if hparams else "", *options}
            _check_arguments(class_, given, self.path)
        whole = _join_parts(file) if file.is_dir() else file
        try:
            return class_.load_from_checkpoint(whole, **{"map_location": "cpu", **options})
        except Exception as error:  # the library and the user's class may raise anything
            if class_.configure_model is LightningModule.configure_model:
                raise
            more = f", with {_RUN_PICKLES}" if self.runs_pickles else ""
            raise CheckpointError(
                f"{self.path}: lightning cannot load the model ({error_line(error)}); if its "
                f"configure_model needs a Trainer, {_GIVE_MODEL}{more}"
            ) from error

    def _load_keras(self, device: Any, options: Mapping[str, Any]) -> Any:
        require("keras")
        os.environ.setdefault("KERAS_BACKEND", "torch")  # read when keras is first imported
        import keras

        file = self.path / KERAS_FILE
        with ZipFile(file) as archive:
            config = json.loads(archive.read("config.json"))
        names = own_names(config)
        custom = self._find_own(names, dict(options.get("custom_objects") or {}))
        options = {**options, "custom_objects": custom}
        try:
            with keras.device(str(device)) if device is not None else nullcontext():
                return keras.saving.load_model(file, **options)
        except Exception as error:  # the library and the user's classes may raise anything
            if not (unknown := names.keys() - custom.keys()):
                raise
            raise CheckpointError(
                f"{self.path}: keras cannot load the model ({error_line(error)}); "
                f"{', '.join(sorted(unknown))}: not found outside of functions in the code of the "
                "run; give custom_objects="
            ) from error

    def _find_own(self, names: Mapping[str, str], given: dict[str, Any]) -> dict[str, Any]:
        """Return the classes and functions with these `own_names`, and the given ones."""
        remedy = "give custom_objects="
        if names.keys() <= given.keys():
            return given
        found = names_in_code(self.origin, self.path, self.data_dir, remedy)
        own = {name: each for name, each in found.items() if isinstance(each, type | FunctionType)}
        for registered, place in names.items():
            module, _, name = place.partition(":")
            if name in own:
                own[registered] = own[name]
            elif module != "__main__" and registered not in given:
                own[registered] = import_class(place, str(self.path), remedy)
        return own | given

    def _load_transformers(self, options: Mapping[str, Any]) -> Any:
        require("transformers")
        import transformers

        class_ = self._find_class()
        if not issubclass(class_, transformers.PreTrainedModel):
            raise CheckpointError(
                f"{self.path}: its class {class_.__qualname__} is no PreTrainedModel, so its "
                f"files do not show how it is built; {_GIVE_MODEL}"
            )
        self._check_whole()
        model = class_.from_pretrained(self.path, **options)
        model.processing_class = self._find_processing_class()
        return model

    def _find_processing_class(self) -> Any:
        from transformers import AutoProcessor

        if not any((self.path / name).exists() for name in _PROCESSORS):
            return None
        try:
            return AutoProcessor.from_pretrained(self.path, trust_remote_code=False)
        except Exception as error:  # it may need another package; the model does without it
            logger.warning(
                "%s: the tokenizer or processor cannot be loaded, so the model comes without: %s",
                self.path,
                error_line(error),
            )
            return None

    def _fill(self, model: Any, options: Mapping[str, Any]) -> Any:
        """Load the weights into the given models, and return these models."""
        if other := ", ".join(sorted(options.keys() - {"weights_only"})):
            raise CheckpointError(f"load: got {other}, which load(model=) has not")
        states = list(_STATES[self.origin.library](self))
        given = list(model) if isinstance(model, list | tuple) else [model]
        if model is None or len(given) != len(states):
            several = f" of {len(states)} models: load(model=[...])" if len(states) > 1 else ""
            raise CheckpointError(
                f"{self.path}: {self.origin.library} has stored weights and not how a model is "
                f"built; {_GIVE_MODEL}{several}"
            )
        for each, state in zip(given, states, strict=True):
            _fill(each, state, self.path)
        return model

    def _check_whole(self) -> None:
        """Check that the weights are not in parts of ranks.

        Raises:
            CheckpointError: The weights are in parts.
        """
        if parts := sorted(self.path.glob("pytorch_model_fsdp_*")):
            raise self._in_parts(
                f"`accelerate merge-weights {parts[0].name} FOLDER` writes them into one file"
            )
        is_zero = (self.path / "zero_to_fp32.py").exists()  # DeepSpeed stores it with its parts
        if is_zero and not any(self.path.glob("model*.safetensors")):
            raise self._in_parts(_JOINS_ZERO)

    def _read(self, file: Path) -> dict[str, Any]:
        """Return what torch has saved in a file; pickles are run only if `runs_pickles` is set.

        Raises:
            CheckpointError: It is damaged, or needs pickles.
        """
        source: Path | BytesIO = file
        if file.is_dir() and self.runs_pickles:
            source = _join_parts(file)
        elif file.is_dir():
            raise CheckpointError(
                f"{file}: the weights are in parts of ranks, and joining them runs a pickle of "
                f"the checkpoint; if you trust it, give load(..., {_RUN_PICKLES})"
            )
        try:
            state = torch.load(
                source, map_location="cpu", weights_only=not self.runs_pickles, mmap=source is file
            )
            return cast("dict[str, Any]", state)
        except UnpicklingError as error:
            raise CheckpointError(
                f"{file} has more than tensors and plain values, and reading it would run code; "
                f"if you trust it, give load(..., {_RUN_PICKLES}) ({error_line(error)})"
            ) from None

    def _in_parts(self, remedy: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: the weights are in parts of ranks; in this folder, or where "
            f"Checkpoint.download() has copied it, {remedy}"
        )


def _read_safetensors(saved: _Saved) -> Iterator[dict[str, torch.Tensor]]:
    saved._check_whole()
    require(saved.origin.library)
    read = importlib.import_module("safetensors.torch").load_file
    files = [each for each in saved.path.iterdir() if _MODEL_FILE.fullmatch(each.name)]
    if not files:
        raise CheckpointError(f"{saved.path}: there is no model.safetensors with weights")
    for file in sorted(files, key=lambda each: (len(each.name), each.name)):
        yield read(file)


def _read_deepspeed(saved: _Saved) -> Iterator[dict[str, torch.Tensor]]:
    engines = [each for each in saved.path.iterdir() if _ENGINE.fullmatch(each.name)]
    for folder in sorted(engines, key=lambda each: (len(each.name), each.name)):
        file = folder / "mp_rank_00_model_states.pt"
        if not file.exists() or (folder / "mp_rank_01_model_states.pt").exists():
            raise saved._in_parts(_JOINS_ZERO)
        yield saved._read(file)["module"]


def _read_lightning(saved: _Saved) -> Iterator[dict[str, torch.Tensor]]:
    yield saved._read(saved.path / LIGHTNING_FILE)["state_dict"]


_ENGINE = re.compile(rf"{DEEPSPEED_TAG}|model\d+")  # of a script; of a DeepSpeedTrial
_MODEL_FILE = re.compile(r"model(_\d+)?\.safetensors")
_STATES = {
    "accelerate": _read_safetensors,
    "deepspeed": _read_deepspeed,
    "lightning": _read_lightning,
    "transformers": _read_safetensors,
}


def _join_parts(folder: Path) -> BytesIO:
    """Return the whole file of a state whose parts Lightning has saved. This runs its pickles."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    joined = BytesIO()
    with TemporaryDirectory(prefix="det-parts-") as temporary:
        file = Path(temporary, LIGHTNING_FILE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is one process
            dcp_to_torch_save(folder, file)
        weights = torch.load(file, weights_only=False, mmap=True)["state_dict"]  # no optimizers
        others = torch.load(folder / "meta.pt", map_location="cpu", weights_only=False)
        torch.save({**others, "state_dict": weights}, joined)
    joined.seek(0)
    return joined


def _check_arguments(class_: Any, given: set[str], path: Path) -> None:
    """Check that a LightningModule can be built.

    Raises:
        CheckpointError: Arguments of its constructor are missing.
    """
    parameters = list(inspect.signature(class_.__init__).parameters.values())[1:]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in kinds and each.name not in given
    ]
    if missing:
        raise CheckpointError(
            f"{path}: {class_.__qualname__} needs {', '.join(missing)}, which the checkpoint does "
            f"not have; give them: load({', '.join(f'{name}=...' for name in missing)}), and "
            "write self.save_hyperparameters() in its __init__"
        )


def _fill(model: nn.Module, state: dict[str, torch.Tensor], path: Path) -> None:
    """Load the weights into the model.

    Raises:
        CheckpointError: They are those of another model.
    """
    own = model.state_dict(keep_vars=True)
    if not own.keys() & state.keys():
        nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")  # DDP's
    loaded = {id(own[name]) for name in state if name in own}
    try:
        missing, surplus = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # other shapes
        raise _other_model(path, one_line(str(error))) from None
    missing = [name for name in missing if id(own[name]) not in loaded]  # others are tied
    if missing or surplus:
        said = [f"it has {name}, the checkpoint not" for name in missing[:3]]
        said += [f"the checkpoint has {name}, it not" for name in surplus[:3]]
        raise _other_model(path, "; ".join(said))


def _other_model(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path}: the given model is not the one that was saved: {why}")
