"""What a rank notes of its collectives, which go on whatever their arguments are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.evidence_page import EvidencePage, create_evidence_page
from det_jupyter.core import evidence


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EvidencePage]:
    folder = RunDir(tmp_path)
    create_evidence_page(folder.evidence, 1)
    page = EvidencePage(folder.evidence)
    monkeypatch.setattr(evidence, "_current", evidence._Evidence(page, 0, folder))
    yield page
    page.close()


def _all_reduce(group: Any, tensors: list[Any]) -> str:
    return "done"


def _tensor(*shape: Any) -> Any:
    return SimpleNamespace(shape=shape, dtype="torch.float32")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([[_tensor(4, 2)]], "all_reduce [4, 2] float32"),
        ([7, [[_tensor(3)], _tensor(4)], _tensor(5)], "all_reduce [3] float32"),
        ([_tensor()], "all_reduce [] float32"),
        ([SimpleNamespace(shape=(1,))], "all_reduce [1] None"),
        ([7, []], "all_reduce"),
        ([], "all_reduce"),
    ],
)
def test_a_collective_is_noted_with_its_first_shape(
    page: EvidencePage, arguments: list[Any], text: str
) -> None:
    entered = evidence._noted("allreduce", lambda group, *given: given)
    for number in (1, 2):
        assert entered(None, *arguments) == tuple(arguments)
        found = page.read(0)
        assert (found.entered, found.collective) == (number, text)


def test_a_collective_that_cannot_be_noted_goes_on(page: EvidencePage) -> None:
    """As with symbolic shapes, while torch.compile traces."""
    entered = evidence._noted("allreduce", _all_reduce)
    assert entered(None, [_tensor([])]) == "done"


def test_shapes_that_differ_in_each_batch_do_not_fill_the_memory(page: EvidencePage) -> None:
    entered = evidence._noted("allreduce", _all_reduce)
    for size in range(3 * evidence._MOST_TEXTS):
        entered(None, [_tensor(size)])
    assert page.read(0).collective == f"all_reduce [{size}] float32"
    assert evidence._current is not None
    assert len(evidence._current._texts) <= evidence._MOST_TEXTS
