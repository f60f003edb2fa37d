"""How much a batch counts in metrics, if the trial says so itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from det_jupyter.pytorch import PyTorchTrial
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.trial.definition import length_function


class Rows(PyTorchTrial):
    def __init__(self) -> None:
        pass


class Tokens(Rows):
    """Counts what is not padding."""

    def get_batch_length(self, batch: torch.Tensor) -> int:
        return int(batch.count_nonzero())


def test_by_default_the_loader_knows() -> None:
    assert length_function(Rows(), "training") is None


def test_a_trial_counts_its_own_records_but_not_those_of_a_stand_in() -> None:
    length = length_function(Tokens(), "training")
    assert length is not None
    batch = torch.tensor([[1, 2, 0], [3, 0, 0]])
    assert length(batch, Share(2, 4), 0) == 3
    assert length(batch, Share(0, 2), 1) == 0


@pytest.mark.parametrize("given", [-1, 2.5, True, None])
def test_what_is_no_number_of_records_is_refused(given: Any) -> None:
    class Wrong(Rows):
        def get_batch_length(self, batch: Any) -> int:
            return given  # type: ignore[no-any-return]  # the mistake

    length = length_function(Wrong(), "training")
    assert length is not None
    with pytest.raises(TrialMistake, match=f"returned {given} for training batch 7, expected a n"):
        length([], Share(1, 1), 7)
