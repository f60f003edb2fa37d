"""A pause within a window of accumulated gradients changes nothing, whatever the trainer.

Each trainer is requested to leave after any of its batches, and continued from each of its
checkpoints: its weights and reports are those of a training that was not disturbed, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from tests.unit.integrations.contexts import metrics, new_context, runs_of, saved

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A way to train.

    Args:
        library: Its `*_runs` module has the loop.
        name: Of the function in it.
        options: Of that function.
        needs_folder: Whether it writes files of its own.
    """

    library: str
    name: str = "fit"
    options: dict[str, Any] = field(default_factory=dict)
    needs_folder: bool = False


TRAINED = {
    "accelerate": Trained(library="accelerate", name="train", options={"window": 3}),
    "accelerate, saving within": Trained(
        library="accelerate", name="train", options={"window": 3, "save_every": 1}
    ),
    "accelerate, by hand": Trained(
        library="accelerate", name="train", options={"by_hand": 3, "save_every": 1}
    ),
    "Core API": Trained(library="torch", name="train"),
    "keras": Trained(library="keras", options={"window": 3}),
    "lightning": Trained(library="lightning", options={"window": 3}),
    "lightning, by hand": Trained(
        library="lightning", options={"module": "ByHand", "limit_val_batches": 0}
    ),
    "transformers": Trained(
        library="transformers",
        name="train",
        options={"gradient_accumulation_steps": 3, "max_steps": 6},
        needs_folder=True,
    ),
}


class Page:
    """A control page, on which the request to leave appears after a number of batches."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.num = 0

    def check(self, name: str) -> bool:
        return self.num >= self.after

    def acknowledge(self) -> None:
        """Do nothing."""

    note_saving = acknowledge


@pytest.fixture(params=list(TRAINED.values()), ids=list(TRAINED), scope="module")
def train(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Any]]:
    """Return a function that trains in a context, and returns the weights."""
    trained: Trained = request.param
    yield from (
        partial(_train, runs, trained, tmp_path_factory) for runs in runs_of(trained.library)
    )


def _train(
    runs: Any, trained: Trained, folders: pytest.TempPathFactory, context: core.Context
) -> Any:
    options = dict(trained.options)
    if "module" in options:
        runs.torch.manual_seed(5)
        options["module"] = getattr(runs, options["module"])()
    if trained.needs_folder:
        options["folder"] = folders.mktemp("out")
    return runs.weights(getattr(runs, trained.name)(context, **options))


@pytest.fixture(scope="module")
def undisturbed(train: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the folder and the context of an undisturbed training, and its weights."""
    folder = tmp_path_factory.mktemp("undisturbed")
    context = new_context(folder)
    return folder, context, train(context)


def leaves_after(
    context: core.Context, num_batches: int, monkeypatch: pytest.MonkeyPatch
) -> core.Context:
    """Return the context, whose trial is requested to leave after a number of batches."""
    import torch

    page: Any = Page(num_batches)
    backward: Any = torch.Tensor.backward

    @wraps(backward)
    def counted(*args: Any, **options: Any) -> None:
        backward(*args, **options)
        page.num += 1

    monkeypatch.setattr(torch.Tensor, "backward", counted)
    monkeypatch.setattr("det_jupyter.integrations.leaving._EXCHANGE_S", 0, raising=False)
    return replace(context, preempt=core.PreemptContext(page, context.distributed))


# After the first batch of a window, a later one and the last, in three windows.
@pytest.mark.parametrize("num_batches", [1, 3, 5, 7])
def test_training_that_is_requested_to_leave_within_a_window_ends_as_an_undisturbed_one(
    train: Callable[..., Any],
    undisturbed: Any,
    tmp_path: Path,
    num_batches: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    _, whole, weights = undisturbed
    first = new_context(tmp_path)
    with monkeypatch.context() as patched:
        train(leaves_after(first, num_batches, patched))
    (last,) = saved(first)[-1:]
    assert last.steps_completed < saved(whole)[-1].steps_completed
    torch.manual_seed(99)  # of another process
    second = new_context(tmp_path, last.uuid)
    assert (train(second) == weights).all()
    assert metrics(first) + metrics(second) == metrics(whole)


def test_training_that_continues_from_any_of_its_checkpoints_ends_as_before(
    train: Callable[..., Any], undisturbed: Any
) -> None:
    import torch

    folder, whole, weights = undisturbed
    for checkpoint in saved(whole)[:-1]:
        torch.manual_seed(99)
        again = new_context(folder, checkpoint.uuid)
        assert (train(again) == weights).all()
        after = [each for each in metrics(whole) if each[1] > checkpoint.steps_completed]
        assert metrics(again)[-len(after) :] == after
