"""The last length ends the training, whatever the trainer, and however far it would go itself.

In the process in which the search has compared the trial before, in a new one that continues, and
where nothing compares it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter import core
from tests.unit.integrations.contexts import (
    ending,
    metrics,
    new_context,
    runs_of,
    saved,
    searched,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries


def operations(context: core.Context) -> Iterator[int]:
    """Yield the lengths of a search, as a loop with the Core API goes through them."""
    for operation in context.searcher.operations():
        yield operation.length
        operation.report_completed(0.5)


BY_CORE_API: dict[str, Any] = {"lengths": operations}

# Trainer, unit, name of the metric, batches per unit; a training of its own has more than 3 units.
TRAINED: list[tuple[str, str, str, int]] = [
    ("accelerate", "batches", "val_loss", 1),
    ("torch", "batches", "loss", 1),  # the Core API and nothing else
    ("keras", "epochs", "val_loss", 4),
    ("lightning", "epochs", "val_loss", 4),
    ("transformers", "epochs", "eval_loss", 5),
    ("transformers", "batches", "eval_loss", 1),
]
# Searches compare these after epochs only.
NOT_COMPARED = [("keras", "batches", "val_loss", 1), ("lightning", "batches", "val_loss", 1)]


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return what a trainer's row of the table has, and its module."""
    library, *others = request.param
    for runs in runs_of(library):
        yield runs, *others


def rows(*rows: tuple[str, str, str, int]) -> pytest.MarkDecorator:
    ids = [f"{library} {unit}" for library, unit, *_ in rows]
    return pytest.mark.parametrize("trained", rows, indirect=True, ids=ids)


def train(runs: Any, context: core.Context, folder: Path) -> int:
    """Train; return the steps of the last checkpoint, after which nothing is reported."""
    name = runs.__name__.rpartition(".")[2]
    if name == "transformers_runs":
        runs.train(context, folder)
    elif name in ("accelerate_runs", "torch_runs"):
        runs.train(context, **BY_CORE_API)
    else:
        runs.fit(context)
    ended_at = saved(context)[-1].steps_completed
    assert all(steps <= ended_at for _, steps, _ in metrics(context))
    return ended_at


@rows(*TRAINED, *NOT_COMPARED)
def test_training_ends_at_its_length_if_nothing_compares_it(trained: Any, tmp_path: Path) -> None:
    runs, unit, metric, batches = trained
    context = ending(new_context(tmp_path / "storage"), unit, metric, 2)
    assert train(runs, context, tmp_path) == 2 * batches


@rows(*TRAINED)
def test_last_length_ends_the_training_in_the_same_process_and_in_a_new_one(
    trained: Any, tmp_path: Path
) -> None:
    runs, unit, metric, batches = trained
    promoted = searched(new_context(tmp_path / "a"), unit, metric, (3, True), first=2)
    assert train(runs, promoted, tmp_path) == 3 * batches
    left = searched(new_context(tmp_path / "b"), unit, metric, first=2)
    assert train(runs, left, tmp_path) == 2 * batches
    again = new_context(tmp_path / "b", saved(left)[-1].uuid)
    assert train(runs, ending(again, unit, metric, 3), tmp_path) == 3 * batches
