"""torch tensors travel out of band: every type, and memory that is shared stays shared."""

from __future__ import annotations

import math
import pickletools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from det_jupyter.contract.trial.captured import load_capsule
from det_jupyter.pytorch import PyTorchTrial
from tests.forks import torch_source
from tests.integration.capture_notebook import Notebook, open_notebook
from tests.integration.rank_forks import RankForks
from tests.trials import TRIAL_SOURCE

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64,
    torch.complex128, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    ranks = RankForks(torch_source())
    with open_notebook(tmp_path_factory.mktemp("tensors"), ranks) as opened:
        opened.run("import torch\nclass Trial:\n    def f(self): return value")
        yield opened


def there_and_back(notebook: Notebook, value: Any) -> Any:
    notebook.names["value"] = value
    capsule = notebook.capture()
    return load_capsule(capsule, notebook.blobs, notebook.root / "code", as_main=False)().f()


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def assert_same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert type(a) is type(b)
    assert (a.dtype, a.shape, a.stride(), a.storage_offset(), a.requires_grad) == (
        b.dtype, b.shape, b.stride(), b.storage_offset(), b.requires_grad,
    )  # fmt: skip
    assert torch.equal(memory_of(a), memory_of(b))


@st.composite
def strided_tensors(draw: st.DrawFn) -> torch.Tensor:
    """Draw any view of any memory: zero and overlapping strides, offsets, empty shapes."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    strides = [draw(st.integers(0, 7)) for _ in shape]
    offset = draw(st.integers(0, 9))
    reach = offset + sum(max(0, n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    # Some of the memories are larger than what stays in the stream.
    count = reach + draw(st.sampled_from([0, 3, 70_000]))
    memory = torch.arange(count * dtype.itemsize).to(torch.uint8).view(dtype)
    return memory.as_strided(shape, strides, offset)


@given(tensor=strided_tensors())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_view_of_any_memory_comes_back_as_it_was(
    notebook: Notebook, tensor: torch.Tensor
) -> None:
    assert_same(tensor, there_and_back(notebook, tensor))


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_travels_and_can_be_written(
    notebook: Notebook, dtype: torch.dtype, size: int
) -> None:
    tensor = torch.arange(size * dtype.itemsize).to(torch.uint8).view(dtype)
    back = there_and_back(notebook, tensor)
    assert_same(tensor, back)
    back.zero_()
    assert tensor.view(torch.uint8).any()


@pytest.mark.parametrize("size", [4, 50_000])
def test_views_of_one_memory_still_share_it(notebook: Notebook, size: int) -> None:
    whole = torch.arange(float(size))
    value = {
        "whole": whole,
        "tail": whole[2:],
        "even": whole[::2],
        "bits": whole.view(torch.int32),
    }
    back = there_and_back(notebook, value)
    back["whole"][2] = 100
    assert back["tail"][0] == back["even"][1] == 100
    assert back["bits"].view(torch.float32)[2] == 100
    assert whole[2] == 2


def test_tied_parameters_stay_tied_and_keep_requires_grad(notebook: Notebook) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    model.register_buffer("steps", torch.zeros(3, dtype=torch.long))
    back = there_and_back(notebook, model)
    assert back[1].weight is back[0].weight
    assert isinstance(back[0].weight, torch.nn.Parameter)
    assert [p.requires_grad for p in back.parameters()] == [True, False, True]
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=0, atol=0)
    back(torch.ones(1, 200)).sum().backward()
    torch.optim.SGD(back.parameters(), lr=1.0).step()


def test_tensors_that_are_not_plain_memory_travel_as_torch_sends_them(notebook: Notebook) -> None:
    torch.manual_seed(0)
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    conjugate = torch.randn(3, dtype=torch.complex64).conj()
    meta = torch.empty(2, 3, device="meta")
    named = torch.nn.Parameter(torch.ones(2))
    named.tag = "mine"  # type: ignore[attr-defined]
    value = [dense.to_sparse(), conjugate, meta, named]
    sparse, conjugate_back, meta_back, named_back = there_and_back(notebook, value)
    assert sparse.is_sparse
    assert torch.equal(sparse.to_dense(), dense)
    assert torch.equal(conjugate_back, conjugate)
    assert (meta_back.device.type, meta_back.shape) == ("meta", (2, 3))
    assert named_back.tag == "mine"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantized_tensors_travel(notebook: Notebook) -> None:
    tensor = torch.quantize_per_tensor(torch.arange(5.0), 0.5, 1, torch.quint8)
    assert torch.equal(there_and_back(notebook, tensor).dequantize(), tensor.dequantize())


def test_a_result_with_a_graph_travels_as_its_value(notebook: Notebook) -> None:
    loss = (torch.ones(3, requires_grad=True) * 2).sum()
    back = there_and_back(notebook, loss)
    assert (back.item(), back.requires_grad, back.is_leaf) == (6, True, True)


def test_datasets_and_optimizers_work_in_a_fresh_process(notebook: Notebook) -> None:
    notebook.run(
        """
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split
torch.manual_seed(0)
images, labels = torch.rand(300, 1, 8, 8), torch.arange(300) % 10
data = TensorDataset(images, labels)
train, test = random_split(data, [200, 100], generator=torch.Generator().manual_seed(1))
""",
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    @torch.no_grad()
    def predict(self, x): return self(x).argmax(1)
    def forward(self, x): return self.body(x)
start = Net()
optimizer = torch.optim.Adam(start.parameters(), lr=0.01)
""",
        """
class DigitsTrial:
    def train(self):
        for x, y in DataLoader(train, batch_size=50):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(start(x), y)
            loss.backward()
            optimizer.step()
        return [loss.item(), start.predict(test[0][0][None]).shape[0], len(test)]
""",
    )
    capsule = notebook.capture("DigitsTrial")
    shown = notebook.in_rank(capsule, "show(Trial().train())")
    expected = notebook.names["DigitsTrial"]().train()
    assert math.isclose(shown[0], expected[0], rel_tol=1e-6)
    assert shown[1:] == [1, 100]
    sizes = {c.name: c.size_bytes for c in capsule.captured}
    assert sizes["images"] > 76_800
    assert sizes["train"] < 5_000  # its indices


def test_memory_of_another_device_is_copied_to_the_cpu_with_a_notice(notebook: Notebook) -> None:
    on_cpu = torch.arange(100_000).untyped_storage()
    methods = {
        "__module__": "torch.storage",  # storages are recognised by the name of their type
        "device": torch.device("cuda:1"),
        "nbytes": lambda self: on_cpu.nbytes(),
        "data_ptr": lambda self: 12345,
        "cpu": lambda self: on_cpu.clone(),
    }
    notebook.names["value"] = {"weights": type("UntypedStorage", (), methods)()}
    capsule = notebook.capture()
    assert capsule.notices == [
        "value: its tensors on cuda:1 were copied to the CPU; move them to the rank's device in "
        "the trial"
    ]
    assert capsule.captured[0].size_bytes >= 800_000
    loaded = load_capsule(capsule, notebook.blobs, notebook.root / "code", as_main=False)().f()
    back = torch.empty(0, dtype=torch.int64).set_(loaded["weights"])
    assert torch.equal(back, torch.arange(100_000))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_tensors_are_copied_to_the_cpu_with_a_notice(notebook: Notebook) -> None:
    notebook.names["value"] = torch.arange(100_000.0, device="cuda")
    capsule = notebook.capture()
    assert capsule.notices == [
        "value: its tensors on cuda:0 were copied to the CPU; move them to the rank's device in "
        "the trial"
    ]
    back = load_capsule(capsule, notebook.blobs, notebook.root / "code", as_main=False)().f()
    assert torch.equal(back, torch.arange(100_000.0))


def test_capturing_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import det_jupyter.front.notebook.capture.capture, sys; "
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert printed.strip() == "set()"


def test_a_capsule_names_what_we_export_as_users_import_it(tmp_path: Path) -> None:
    with open_notebook(tmp_path) as notebook:
        notebook.run(TRIAL_SOURCE)
        capsule = notebook.capture("SmallTrial")
        stream = notebook.blobs.read(capsule.payload)
        loaded = load_capsule(capsule, notebook.blobs, tmp_path / "code", as_main=False)
    ours = {
        str(value)
        for _, value, _ in pickletools.genops(stream)
        if isinstance(value, str) and value.startswith("det_jupyter")
    }
    # `det_jupyter.contract.trial.captured` is a part of the format.
    assert ours == {"det_jupyter.contract.trial.captured", "det_jupyter.pytorch"}
    assert issubclass(loaded, PyTorchTrial)
