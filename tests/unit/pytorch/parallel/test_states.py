"""States by the user's own names, however the model was trained; gradients for other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel.replicas import fixes_buckets
from det_jupyter.pytorch.parallel.sharding import blocks

NAMES = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"]
NAMES += ["1.num_batches_tracked"]


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def test_a_compiled_model_has_the_users_names() -> None:
    compiled = torch.compile(model(), backend="eager")
    assert isinstance(compiled, nn.Module)
    assert list(parallel.model_state(compiled)) == NAMES


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_prefixes_of_other_wrappers_are_tolerated(prefix: str, is_compiled: bool) -> None:
    saved = {f"{prefix}{name}": value for name, value in model(1).state_dict().items()}
    target = model(2)
    given = torch.compile(target, backend="eager") if is_compiled else target
    assert isinstance(given, nn.Module)
    parallel.load_model_state(given, saved)
    assert torch.equal(target[0].weight, model(1)[0].weight)


def test_a_users_own_submodule_called_module_keeps_its_name() -> None:
    target = nn.ModuleDict({"module": nn.Linear(1, 1)})
    source = nn.ModuleDict({"module": nn.Linear(1, 1)})
    parallel.load_model_state(target, parallel.model_state(source))
    assert parallel.model_state(target) == source.state_dict()


def test_another_models_state_is_refused_with_torchs_words() -> None:
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict"):
        parallel.load_model_state(model(), nn.Linear(3, 2).state_dict())


def test_versions_of_modules_survive_new_names() -> None:
    saved = torch.compile(model(), backend="eager")
    assert isinstance(saved, nn.Module)
    state = parallel.model_state(saved)
    assert getattr(state, "_metadata", {})["1"] == {"version": 2}  # BatchNorm's


def test_gradients_are_copies_and_those_that_were_none_stay_none() -> None:
    source, target = model(), model()
    source[0].weight.grad = torch.ones(2, 3)
    saved = parallel.gradients(source)
    source[0].weight.grad.zero_()
    parallel.set_gradients(target, saved)
    assert target[0].weight.grad is not None
    assert target[0].weight.grad.tolist() == [[1.0] * 3] * 2
    assert target[0].bias.grad is None


@settings(max_examples=25)
@given(
    values=st.lists(st.lists(st.integers(-99, 99), max_size=3), min_size=1, max_size=5),
    new_size=st.integers(1, 6),
)
def test_rescaled_gradients_have_the_same_mean(values: list[list[int]], new_size: int) -> None:
    per_rank = [
        {str(index): torch.tensor(float(value)) for index, value in enumerate(rank)}
        for rank in values
    ]
    rescaled = parallel.rescaled_gradients(per_rank, new_size)
    assert len(rescaled) == new_size
    for index in range(3):
        old = sum(rank[index] for rank in values if len(rank) > index) / len(values)
        new = sum(float(rank.get(str(index), 0)) for rank in rescaled) / new_size
        assert new == pytest.approx(old)


def test_a_model_without_exchange_keeps_nothing_of_it() -> None:
    assert parallel.rank_state([model()]) is None
    parallel.load_rank_state([model()], None)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


CUDA = torch.device("cuda")


def test_buckets_on_a_gpu_come_as_gradients_do_where_the_last_bit_does_not_matter() -> None:
    assert fixes_buckets(torch.device("cpu"), None)
    assert fixes_buckets(CUDA, "powersgd")
    assert not fixes_buckets(CUDA, None)
    assert not fixes_buckets(CUDA, "fp16")


@pytest.mark.usefixtures("deterministic")
def test_buckets_on_a_gpu_are_fixed_for_those_who_ask_for_the_same_bits() -> None:
    assert fixes_buckets(CUDA, None)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.stages = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)])
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 1, 4), 2, enable_nested_tensor=False
        )
        self.head = nn.Sequential(nn.Identity(), nn.Linear(4, 5, bias=False))
        self.head[1].weight = self.embed.weight


def test_blocks_are_the_children_of_containers_that_share_nothing() -> None:
    network = Network()
    names = {id(part): name for name, part in network.named_modules()}
    assert [names[id(block)] for block in blocks(network)] == [
        "stages.0.0",
        "stages.1",
        "body.layers.0",
        "body.layers.1",
    ]
