"""A checkpoint carries the code of its trial: it loads where nothing else of us is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest
import torch

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.paths import HOME_VARIABLE
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.contract.trial.origin import LOAD_DATA_FILE, Origin, name_of_class
from det_jupyter.core import CheckpointContext, DistributedContext, RecordList
from det_jupyter.errors import CheckpointError
from det_jupyter.front.notebook.capture.capture import capture
from det_jupyter.pytorch import (
    CheckpointLoadContext,
    PyTorchTrial,
    PyTorchTrialContext,
    load_trial_from_checkpoint_path,
)
from det_jupyter.pytorch.checkpoints.saver import Saver
from det_jupyter.pytorch.checkpoints.training_state import Parts
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.storage.directory import DirectoryStorage

MODULE = "def doubled(x):\n    return 2 * x\n"
SOURCE = """
import torch
from torch import nn
from carried_module import doubled
from det_jupyter.pytorch import DataLoader, PyTorchTrial

table = torch.arange(300_000.0)


class TableTrial(PyTorchTrial):
    def __init__(self, context, scale=1):
        self.context = context
        self.model = context.wrap_model(nn.Linear(context.get_hparam("width"), 1))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1)
        )
        self.total = scale * doubled(table.sum().item())
"""


class PlainTrial(PyTorchTrial):
    """A trial in a module, which no notebook has captured."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.model = context.wrap_model(torch.nn.Linear(2, 1))


def save(root: Path, origin: Origin, width: int) -> CheckpointSaved:
    """Save a checkpoint of a linear model whose weights are all 5."""
    distributed = DistributedContext()
    context = PyTorchTrialContext(distributed=distributed, device=torch.device("cpu"))
    model = context.wrap_model(torch.nn.Linear(width, 1))
    torch.nn.init.constant_(model.weight, 5.0)  # type: ignore[arg-type]  # a Linear's
    records = RecordList()
    storage = CheckpointContext(DirectoryStorage(root), records, distributed, {})
    saver = Saver(storage, Parts(context=context, callbacks=Callbacks({})), origin)
    saver.begin(steps_completed=1)
    saver.finish()
    (record,) = records.records
    assert isinstance(record, CheckpointSaved)
    return record


@pytest.fixture
def captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Capsule, BlobStore]:
    """Capture TableTrial with its array and its local module."""
    cwd = tmp_path / "notebooks"
    cwd.mkdir()
    (cwd / "carried_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(cwd))
    namespace = {"__name__": "__main__"}
    exec(compile(SOURCE, "<cells>", "exec"), namespace)
    blobs = BlobStore(tmp_path / "data" / "blobs")
    capsule = capture("TableTrial", namespace, blobs=blobs, cwd=cwd)
    sys.modules.pop("carried_module")  # the notebook's
    assert capsule.buffers
    assert capsule.modules.keys() == {"carried_module.py"}
    return capsule, blobs


def origin_of(captured: tuple[Capsule, BlobStore]) -> Origin:
    capsule, blobs = captured
    return Origin(
        trial_class="TableTrial", hparams={"width": 3}, seed=4, capsule=capsule, blobs=blobs
    )


LOAD = """
import sys
from det_jupyter import load_checkpoint
trial = load_checkpoint(sys.argv[1], trial_kwargs={"scale": 10})
assert trial.model.weight.tolist() == [[5.0, 5.0, 5.0]]
assert not trial.model.training
assert trial.context.get_trial_seed() == 4
assert "torch._dynamo" not in sys.modules  # its import takes longer than all the rest
print(trial.total)
"""


def test_a_captured_trial_loads_in_another_place_without_the_data_folder(
    tmp_path: Path, captured: tuple[Capsule, BlobStore]
) -> None:
    record = save(tmp_path / "checkpoints", origin_of(captured), 3)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(record.path, elsewhere)
    for name in ("data", "checkpoints", "notebooks"):
        shutil.rmtree(tmp_path / name)
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOAD, str(elsewhere)],
        env={**os.environ, HOME_VARIABLE: str(home), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert float(done.stdout) == 10 * 2 * torch.arange(300_000.0).sum().item()
    assert not home.exists()
    assert list(tmp_path.glob("det-code-*")) == []  # the modules' folder is gone again


def test_what_was_captured_is_linked_and_not_copied(
    tmp_path: Path, captured: tuple[Capsule, BlobStore]
) -> None:
    capsule, blobs = captured
    first = save(tmp_path / "checkpoints", origin_of(captured), 3)
    second = save(tmp_path / "checkpoints", origin_of(captured), 3)
    (digest,) = set(capsule.buffers)
    for record in (first, second):
        carried = Path(record.path) / "code" / "files" / digest
        assert carried.samefile(blobs.path(digest))
        assert record.size_bytes < 100_000  # without the 1.2 MB that it shares
    DirectoryStorage(tmp_path / "checkpoints").delete(first.uuid)
    assert blobs.path(digest).stat().st_size >= 1_200_000


def test_code_is_found_where_earlier_versions_kept_it(
    tmp_path: Path, captured: tuple[Capsule, BlobStore]
) -> None:
    path = Path(save(tmp_path / "checkpoints", origin_of(captured), 3).path)
    digest = captured[0].payload
    earlier = path / "code" / "blobs" / digest[:2] / digest
    earlier.parent.mkdir(parents=True)
    (path / "code" / "files").rename(path / "elsewhere")
    (path / "elsewhere" / digest).rename(earlier)
    assert Origin.read(path).blobs.path(digest) == earlier  # type: ignore[union-attr]


def test_a_class_beside_a_captured_function_is_found(tmp_path: Path) -> None:
    source = (
        "import torch\nfrom det_jupyter.pytorch import PyTorchTrial\n"
        "class Outer:\n    class Inner(PyTorchTrial):\n"
        "        def __init__(self, context):\n"
        "            self.model = context.wrap_model(torch.nn.Linear(2, 1))\n"
        "def main(core_context):\n    return Outer.Inner\n"
    )
    namespace = {"__name__": "__main__"}
    exec(compile(source, "<cells>", "exec"), namespace)
    blobs = BlobStore(tmp_path / "blobs")
    capsule = Capsule(
        entrypoint="main",
        payload=blobs.put(cloudpickle.dumps((namespace["main"], {}), protocol=5)),
        sources=blobs.put(b"{}"),
    )
    origin = Origin(trial_class="__main__:Outer.Inner", capsule=capsule, blobs=blobs)
    record = save(tmp_path / "checkpoints", origin, 2)
    trial = load_trial_from_checkpoint_path(record.path)
    assert type(trial).__qualname__ == "Outer.Inner"
    gone = Origin(trial_class="__main__:Other", capsule=capsule, blobs=blobs)
    record = save(tmp_path / "checkpoints", gone, 2)
    with pytest.raises(CheckpointError, match=r"main .* without the name of its class Other, "):
        load_trial_from_checkpoint_path(record.path)


def test_across_file_systems_it_is_copied(
    tmp_path: Path, captured: tuple[Capsule, BlobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    record = save(tmp_path / "checkpoints", origin_of(captured), 3)
    assert record.size_bytes > 1_200_000
    trial = load_trial_from_checkpoint_path(record.path, data_dir=tmp_path / "unpacked")
    assert trial.total == 2 * torch.arange(300_000.0).sum().item()  # type: ignore[attr-defined]  # TableTrial's
    sys.modules.pop("carried_module")


def test_a_class_that_was_not_captured_is_imported(tmp_path: Path) -> None:
    origin = Origin(trial_class=name_of_class(PlainTrial))
    record = save(tmp_path, origin, 2)
    trial = load_trial_from_checkpoint_path(record.path)
    assert type(trial) is PlainTrial
    with pytest.raises(CheckpointError, match=r"cannot be read: Can not safely load weights"):
        load_trial_from_checkpoint_path(
            record.path, torch_load_kwargs={"weights_only": True, "pickle_module": json}
        )
    assert trial.model.state_dict()["weight"].tolist() == [[5.0, 5.0]]


def test_a_class_that_is_not_to_be_had_is_asked_for(tmp_path: Path) -> None:
    record = save(tmp_path, Origin(trial_class="nowhere.at_all:Gone", hparams={"a": 1}), 2)
    with pytest.raises(CheckpointError, match=r"nowhere\.at_all:Gone cannot be imported here"):
        load_trial_from_checkpoint_path(record.path)
    trial = load_trial_from_checkpoint_path(record.path, PlainTrial)
    assert type(trial) is PlainTrial


def test_hyperparameters_are_saved_without_a_configuration(tmp_path: Path) -> None:
    record = save(tmp_path, Origin(trial_class="m:T", hparams={"lr": 0.1}), 2)
    load_data = json.loads((Path(record.path) / LOAD_DATA_FILE).read_text())
    assert (load_data["hparams"], load_data["config"]) == ({"lr": 0.1}, None)


def test_a_trial_is_built_by_hand_with_a_load_context() -> None:
    context = CheckpointLoadContext(
        hparams={"global_batch_size": 8}, exp_conf={"data": {"folder": "here"}}
    )
    trial = PlainTrial(context)
    assert type(trial.model) is torch.nn.Linear
    assert context.get_data_config() == {"folder": "here"}
    assert context.get_per_slot_batch_size() == 8
    with pytest.raises(ValueError, match="no configuration was given"):
        CheckpointLoadContext().get_experiment_config()


def test_damaged_notes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a checkpoint of a trial"):
        load_trial_from_checkpoint_path(tmp_path)
    (tmp_path / LOAD_DATA_FILE).write_text("{}")
    with pytest.raises(CheckpointError, match=r"load_data\.json is damaged"):
        load_trial_from_checkpoint_path(tmp_path)
