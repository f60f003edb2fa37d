"""The names that code for Determined uses resolve, and are det_jupyter's."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import det_jupyter
from tests.unit.compat.conftest import COMPAT

ROOT = COMPAT.parent
PAGE = ROOT / "docs" / "from-determined.md"

USED = {
    "determined": (
        "ClusterInfo InvalidHP LOG_FORMAT TrialContext TrialInfo __version__ core errors "
        "experimental get_cluster_info import_from_path pytorch util"
    ),
    "determined.core": (
        "CheckpointContext Context DistributedContext DownloadMode EarlyExitReason PreemptContext "
        "PreemptMode ProfilerContext SearcherContext SearcherMode SearcherOperation "
        "TensorboardMode TrainContext Unit init"
    ),
    "determined.errors": "CheckpointNotFound InvalidExperimentException InvalidHP",
    "determined.experimental": "Determined client core_v2",
    "determined.experimental.client": (
        "Checkpoint CheckpointSortBy Determined DownloadMode Experiment ExperimentState OrderBy "
        "Model ModelOrderBy ModelSortBy ModelVersion Trial create_experiment create_model "
        "get_checkpoint get_experiment get_model get_models get_trial list_experiments login"
    ),
    "determined.experimental.core_v2": (
        "Config DefaultConfig DistributedContext PreemptMode TensorboardMode UnmanagedConfig "
        "close init init_context url_reverse_webui_exp_view"
    ),
    "determined.pytorch": (
        "Batch CheckpointLoadContext DataLoader Epoch LRScheduler MetricReducer PyTorchCallback "
        "PyTorchExperimentalContext PyTorchTrial PyTorchTrialContext Reducer TorchData TrainUnit "
        "Trainer adapt_batch_sampler data_length init load_trial_from_checkpoint_path samplers "
        "to_device"
    ),
    "determined.pytorch.deepspeed": (
        "DeepSpeedTrial DeepSpeedTrialContext Trainer init overwrite_deepspeed_config"
    ),
    "determined.pytorch.experimental": (
        "TorchBatchProcessor TorchBatchProcessorContext get_default_device torch_batch_process"
    ),
    "determined.pytorch.samplers": (
        "DistributedBatchSampler DistributedSampler RepeatBatchSampler RepeatSampler "
        "ReproducibleShuffleBatchSampler ReproducibleShuffleSampler SkipBatchSampler SkipSampler"
    ),
    "determined.tensorboard.metric_writers.pytorch": "TorchWriter",
    "determined.util": "download_gcs_blob_with_backoff",
}


@pytest.mark.parametrize("module", USED)
def test_names_that_are_used_resolve(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in USED[module].split() if not hasattr(found, name)] == []


def test_classes_are_det_jupyters_own() -> None:
    import determined.pytorch
    from det_jupyter import pytorch

    assert determined.pytorch.PyTorchTrial is pytorch.PyTorchTrial
    assert determined.TrialContext is pytorch.PyTorchTrialContext
    assert determined.InvalidHP is det_jupyter.InvalidHP
    assert determined.get_cluster_info is det_jupyter.get_cluster_info


def from_import() -> None:
    from determined.pytorch import ClipEverything  # noqa: F401


def module_import() -> None:
    import determined.estimator  # type: ignore[import-not-found] # noqa: F401


def attribute() -> None:
    import determined

    print(determined.common)


def attribute_of_a_part() -> None:
    import determined.experimental.client as client

    print(client.get_workspace)


@pytest.mark.parametrize("use", [from_import, module_import, attribute, attribute_of_a_part])
def test_what_is_lacking_names_the_page(use: Callable[[], None]) -> None:
    with pytest.raises((ImportError, AttributeError), match=r"no determined.*from-determined\.md"):
        use()


def test_names_of_python_itself_are_not_there_quietly() -> None:
    import determined

    assert not hasattr(determined, "__wrapped__")
    assert not hasattr(determined, "nothing_of_the_kind")


def test_the_page_lists_what_is_lacking() -> None:
    from determined._lacking import LACKING

    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in LACKING if name.removeprefix("determined.") not in page] == []


def run(code: str, *line: str, path: tuple[Path, ...] = (COMPAT,)) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *(line or ("-c", code))],
        env={"PYTHONPATH": ":".join(map(str, path)), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_says_once_what_it_is_and_imports_no_torch() -> None:
    code = "import sys\nimport determined\nimport determined\nassert 'torch' not in sys.modules"
    status, text = run(code)
    assert status == 0
    assert text.count("this `determined` is det_jupyter") == 1
    assert "docs/from-determined.md" in text


def test_other_ranks_and_wrappers_say_nothing() -> None:
    assert run("import os; os.environ['RANK'] = '1'; import determined") == (0, "")
    _, text = run("", "-m", "determined.launch.wrap_rank", "0", sys.executable, "-c", "print(1)")
    assert "this `determined`" not in text


def test_it_does_not_work_beside_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "determined-0.38.1.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: determined\nVersion: 0.38.1\n"
    (tmp_path / "determined-0.38.1.dist-info" / "METADATA").write_text(metadata)
    status, text = run("import determined", path=(COMPAT, tmp_path))
    assert status == 1
    assert "both determined 0.38.1 and det-jupyter-determined are installed" in text
    assert "pip uninstall" in text


def test_its_wheel_has_every_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=COMPAT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("det_jupyter_determined-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.endswith(".py")}
    assert names == {str(path.relative_to(COMPAT)) for path in COMPAT.rglob("determined/**/*.py")}


def test_its_distribution_has_the_version_of_det_jupyter_and_what_examples_import() -> None:
    project = tomllib.loads((COMPAT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == det_jupyter.__version__
    own, *others = project["dependencies"]
    assert own == f"det-jupyter>={det_jupyter.__version__}"
    # tutorials/mnist_pytorch and four other families of Determined's examples import these.
    assert {each.partition(">=")[0] for each in others} == {"requests", "ruamel.yaml"}
