"""The same run, whatever happens to it: on more ranks, paused, killed, on other slots.

Real gangs train random trials. Sums over ranks are in another order than sums over rows, so runs
on different numbers of ranks are compared in float64 up to rounding. All else is compared bit for
bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import Change, ChangeOrder, Order
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported
from det_jupyter.contract.values.lengths import Length
from tests.exactness import examples
from tests.integration.rank_support import Gang, Lab

pytestmark = [pytest.mark.exactness, pytest.mark.timeout(900)]
_SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def tried(usual: int) -> settings:
    """Return settings for examples that take seconds each: not to be shrunk."""
    return settings(
        max_examples=examples(usual),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=_SLOW,
    )


# All that a run depends on is in the hyperparameters: sizes, workers, noise, windows.
SOURCE = """
import random
import numpy, torch
from torch import nn
from det_jupyter.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial


class Records(torch.utils.data.Dataset):
    def __init__(self, number, noise):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(number, 6, generator=generator, dtype=torch.float64)
        self.noise = noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if self.noise:
            x = x + 0.1 * (random.random() + numpy.random.rand() + float(torch.rand(())))
        return x, x.sum(), index


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, records):
        self.records = records

    def __iter__(self):
        order = list(range(len(self.records)))
        random.shuffle(order)
        return (self.records[index] for index in order)


class Drawing(PyTorchCallback):
    drawn = 0.0

    def on_training_epoch_end(self, epoch_idx):
        self.drawn += random.random()

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


class AnyTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        hp = self.hp = context.get_hparams()
        dropout = nn.Dropout(0.3 if hp["noise"] else 0.0)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), dropout, nn.Linear(16, 1))
        self.model = context.wrap_model(model.double())
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=0.01)
        )
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.97),
            LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )
        self.callback = Drawing()

    def build_callbacks(self):
        return {"drawing": self.callback}

    def build_training_data_loader(self):
        hp = self.hp
        records = Records(hp["records"], hp["noise"])
        return DataLoader(
            Stream(records) if hp["stream"] else records,
            self.context.get_per_slot_batch_size(),
            shuffle=not hp["stream"], drop_last=hp["drop_last"], num_workers=hp["workers"],
        )

    def build_validation_data_loader(self):
        return DataLoader(Records(7, False), 2)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y, index = batch
        # The loss is a mean over records, or over the 1 to 30 tokens of each.
        tokens = index * 7 % 30 + 1 if self.hp["tokens"] else torch.ones_like(index)
        loss = ((self.model(x)[:, 0] - y) ** 2 * tokens).sum() / tokens.sum()
        weight = tokens.sum() if self.hp["tokens"] else None
        if self.hp["noise"]:
            loss = loss * (1 + 0.01 * random.random() + 0.01 * numpy.random.rand())
        self.context.backward(loss, weight=weight)
        self.context.step_optimizer(
            self.optimizer, lambda ps: nn.utils.clip_grad_norm_(ps, 5.0)
        )
        drawn = self.callback.drawn if self.hp["noise"] else 0.0  # each rank draws its own
        mean_index = (index.double() * tokens).sum() / tokens.sum()
        return {"drawn": drawn, "loss": loss, "records": mean_index}

    def evaluate_batch(self, batch, batch_idx):
        x, y, index = batch
        return {"error": nn.functional.mse_loss(self.model(x)[:, 0], y)}
"""


@st.composite
def configs(draw: st.DrawFn, *, is_noisy: bool | None = None) -> dict[str, Any]:
    """Draw a trial's configuration: a dozen or two of batches over short passes."""
    global_batch = draw(st.integers(3, 9))
    stream = draw(st.booleans())
    return {
        "entrypoint": "AnyTrial",
        "hyperparameters": {
            "global_batch_size": global_batch,
            "records": draw(st.integers(global_batch, 31)),
            "drop_last": draw(st.booleans()),
            "stream": stream,
            "noise": draw(st.booleans()) if is_noisy is None else is_noisy,
            "workers": draw(st.sampled_from([0, 0, 2])),
            "tokens": draw(st.booleans()),
        },
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 17}},
        "min_validation_period": {"batches": draw(st.sampled_from([0, 5]))},
        "min_checkpoint_period": {"batches": draw(st.integers(3, 6))},
        "scheduling_unit": draw(st.integers(2, 9)),
        "optimizations": {"aggregation_frequency": draw(st.sampled_from([1, 1, 3, 4]))},
    }


def run(
    lab: Lab, config: dict[str, Any], ranks: int, *, source: str = SOURCE, **arguments: Any
) -> Gang:
    gang = lab.start(source, config, ranks=ranks, **arguments)
    assert gang.ended().reason in ("completed", "preempted")
    return gang


@st.composite
def changes(draw: st.DrawFn) -> list[Order]:
    """Draw changes of a trial that were made after some of its batches."""
    return [
        ChangeOrder(
            id=index + 1,
            steps_completed=draw(st.integers(0, 16)),
            change=Change(
                lr_factor=draw(st.sampled_from([0.5, 2.0, 1.1])),
                min_validation_period=draw(
                    st.none() | st.integers(0, 4).map(lambda n: Length("batches", n))
                ),
            ),
        )
        for index in range(draw(st.integers(0, 2)))
    ]


def interrupted(
    lab: Lab, config: dict[str, Any], sizes: Sequence[int], how: str, orders: Sequence[Order]
) -> list[Gang]:
    """Return the runs of a trial, by their numbers of ranks: `how` breaks off the first."""
    lines = {"environment_variables": [f"DET_JUPYTER_INTERRUPT={how}"]}
    plan, folder = lab.prepare(SOURCE, {**config, "environment": lines}, sizes[0], orders=orders)
    gangs = [lab.start_plan(plan.model_copy(update={"run": 1}), folder)]
    gangs[0].wait_for_all()
    for size in sizes[1:]:
        checkpoints = [r for r in gangs[-1].records() if getattr(r, "kind", "") == "checkpoint"]
        checkpoint = gangs[-1].last_checkpoint() if checkpoints else None
        gangs.append(run(lab, config, size, checkpoint=checkpoint, orders=orders))
    return gangs


def batches(gang: Gang) -> dict[int, list[Any]]:
    """Return the metrics of each batch that the gang has trained."""
    return {
        record.first + index: list(values)
        for record in gang.of(BatchMetrics)
        for index, values in enumerate(zip(*record.values.values(), strict=True))
    }


def reports(gang: Gang) -> dict[tuple[str, int], str]:
    """Return what was reported, averages over the batches since the last report among it."""
    return {
        (record.group, record.steps_completed): repr(record.metrics)
        for record in gang.of(MetricsReported)
    }


def state(gang: Gang) -> dict[str, Any]:
    path = gang.last_checkpoint().path
    loaded: dict[str, Any] = torch.load(f"{path}/state_dict.pt", weights_only=True)
    return loaded


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return {path: value}
    return {k: v for key, item in items for k, v in leaves(item, f"{path}.{key}").items()}


def assert_same_state(one: Gang, other: Gang) -> None:
    expected, got = leaves(state(one)), leaves(state(other))
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        same = torch.equal(value, got[name]) if torch.is_tensor(value) else value == got[name]
        assert same, name


TOKENS = """
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

IGNORED = -100


class Texts(torch.utils.data.Dataset):
    \"\"\"Texts of 1 to 30 tokens, filled up with what the loss ignores.\"\"\"

    def __init__(self, number):
        generator = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(1, 31, (number,), generator=generator)
        self.tokens = torch.randint(0, 11, (number, 30), generator=generator)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        labels = self.tokens[index].clone()
        labels[self.lengths[index]:] = IGNORED
        return self.tokens[index], labels


class Speaking(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 11)).double()
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.9)
        )

    def build_training_data_loader(self):
        texts = Texts(self.context.get_hparam("texts"))
        return DataLoader(texts, self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(Texts(9), 2)

    def get_batch_length(self, batch):
        return int((batch[1] != IGNORED).sum())

    def loss(self, batch):
        tokens, labels = batch
        return nn.functional.cross_entropy(
            self.model(tokens).flatten(0, 1), labels.flatten(), ignore_index=IGNORED
        )

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.loss(batch)
        self.context.backward(loss, weight=(batch[1] != IGNORED).sum())
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        return {"error": self.loss(batch)}
"""


@pytest.mark.parametrize(
    ("texts", "ways"),  # ranks, global batch size, window
    [
        (45, [(1, 10, 1), (2, 10, 1)]),  # the last batch of a pass is a short one
        (40, [(1, 10, 1), (1, 5, 2), (2, 5, 2)]),
    ],
)
def test_a_mean_over_tokens_is_the_same_on_any_slots_and_in_any_window(
    lab: Lab, texts: int, ways: list[tuple[int, int, int]]
) -> None:
    ends = []
    for ranks, batch, window in ways:
        length = {"batches": 12 * window}
        config = {
            "entrypoint": "Speaking",
            "hyperparameters": {"global_batch_size": batch, "texts": texts},
            "searcher": {"name": "single", "metric": "error", "max_length": length},
            "optimizations": {"aggregation_frequency": window},
            "scheduling_unit": 4 * window,
        }
        gang = run(lab, config, ranks, source=TOKENS)
        ends.append((gang.weights(), [record.metrics for record in gang.of(MetricsReported)]))
    (weights, reported), *others = ends
    assert len(reported) == 4  # three reports and a validation
    for got_weights, got_reported in others:
        for name, tensor in weights.items():
            assert (tensor - got_weights[name]).abs().max() < 1e-12, name
        for expected, got in zip(reported, got_reported, strict=True):
            assert got == pytest.approx(expected, abs=1e-12)


@tried(3)
@given(
    config=configs(),
    ranks=st.integers(1, 3),
    how=st.sampled_from(["pause", "kill"]),
    at=st.integers(1, 16),
    orders=changes(),
    workers=st.integers(0, 3),
)
def test_a_run_that_is_broken_off_or_has_other_workers_ends_with_the_same_bits(
    lab: Lab,
    config: dict[str, Any],
    ranks: int,
    how: str,
    at: int,
    orders: list[Order],
    workers: int,
) -> None:
    straight = run(lab, config, ranks, orders=orders)
    hparams = config["hyperparameters"] | {"workers": workers}
    others = {**config, "hyperparameters": hparams}
    for resumed in interrupted(lab, others, [ranks, ranks], f"{how}@{at}", orders):
        assert batches(resumed).items() <= batches(straight).items()
        assert reports(resumed).items() <= reports(straight).items()
    assert_same_state(straight, resumed)


@tried(3)
@given(
    config=configs(is_noisy=False),
    sizes=st.permutations([1, 2, 3]),
    how=st.sampled_from(["pause", "kill"]),
    at=st.integers(1, 16),
    orders=changes(),
)
def test_any_number_of_ranks_trains_what_one_does_and_goes_on_where_another_was(
    lab: Lab, config: dict[str, Any], sizes: list[int], how: str, at: int, orders: list[Order]
) -> None:
    straight = run(lab, config, 1, orders=orders)
    expected = batches(straight)
    errors = {record.steps_completed: record.metrics["error"] for record in straight.validations()}
    for resumed in interrupted(lab, config, sizes[:2], f"{how}@{at}", orders):
        for steps, values in batches(resumed).items():
            # The mean index of the records that were trained says which ones they were.
            assert values == pytest.approx(expected[steps], abs=1e-11), steps
        for record in resumed.validations():
            error = errors[record.steps_completed]
            assert record.metrics["error"] == pytest.approx(error, abs=1e-12)
    for name, tensor in straight.weights().items():
        assert (tensor - resumed.weights()[name]).abs().max() < 1e-11, name
