"""Gradients of a window that is open are saved, and those that an optimizer has used are not."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from det_jupyter.integrations.gradients import mark_used, restore_gradients, save_gradients


def models() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(2, 1), nn.Linear(1, 1, bias=False)]


def with_gradients(*, only_first: bool = False) -> list[nn.Module]:
    made = models()
    outputs = made[0](torch.ones(1, 2))
    (outputs if only_first else made[1](outputs)).sum().backward()
    return made


def test_gradients_come_back_where_they_were(tmp_path: Path) -> None:
    saved, restored = with_gradients(only_first=True), models()
    restored[1](torch.ones(1, 1)).sum().backward()
    save_gradients(saved, tmp_path, rank=3)
    assert [path.name for path in tmp_path.iterdir()] == ["gradients-3.pt"]
    restore_gradients(restored, tmp_path, rank=3)
    for one, other in zip(saved, restored, strict=True):
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            if mine.grad is None:
                assert theirs.grad is None
            else:
                assert theirs.grad is not None
                assert torch.equal(mine.grad, theirs.grad)
    restore_gradients(restored, tmp_path, rank=0)  # another rank has saved none
    assert next(restored[0].parameters()).grad is not None


def test_gradients_that_were_used_are_not_saved_until_there_are_new_ones(tmp_path: Path) -> None:
    made = with_gradients()
    optimizer = torch.optim.SGD([each for model in made for each in model.parameters()], lr=0.1)
    mark_used([optimizer])
    optimizer.step()
    save_gradients(made, tmp_path, rank=0)
    assert list(tmp_path.iterdir()) == []
    made[0](torch.ones(1, 2)).sum().backward()  # added to those that were used
    save_gradients(made, tmp_path, rank=0)
    [first, second] = torch.load(tmp_path / "gradients-0.pt")
    assert all(each is not None for each in first)
    assert second == [None]


def test_without_gradients_there_is_no_file(tmp_path: Path) -> None:
    save_gradients(models(), tmp_path, rank=0)
    assert list(tmp_path.iterdir()) == []
