"""How many records a batch has, and how it gets to a device."""

from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import numpy
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from det_jupyter.pytorch.data import data_length, to_device
from det_jupyter.pytorch.data.batches import pin

META = torch.device("meta")
Pair = namedtuple("Pair", ["x", "y"])


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (torch.zeros(3, 5), 3),
        (numpy.zeros((4, 2)), 4),
        ([torch.zeros(3, 5), torch.zeros(3)], 3),
        ((torch.zeros(2), torch.zeros(2)), 2),
        ({"name": "train", "x": torch.zeros(6)}, 6),
        ({"x": {"deep": [torch.zeros(7)]}}, 7),
        (UserDict({"x": torch.zeros(5)}), 5),
        (["a", "b", "c"], 3),
        (range(4), 4),
        ({"name": b"ab", "own": range(5)}, 5),
        ([torch.tensor(1), torch.tensor(2)], 2),
        (({"text": ["a", "b"]}, 0.5), 2),
        (pack_sequence([torch.zeros(3), torch.zeros(2)]), 2),
    ],
)
def test_a_batch_has_as_many_records_as_its_first_tensor_has_rows(data: Any, length: int) -> None:
    assert data_length(data) == length


@pytest.mark.parametrize(
    ("data", "kind"),
    [(0, TypeError), (5, TypeError), (None, TypeError), ("text", TypeError), ({}, ValueError),
     ([], ValueError), (torch.tensor(1.0), ValueError), ({"x": 3}, ValueError)],
)  # fmt: skip
def test_what_has_no_length_is_told_how_to_get_one(data: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="override get_batch_length"):
        data_length(data)


def test_nested_data_is_moved_and_keeps_its_shape() -> None:
    tensor = torch.zeros(2)
    data = {"pair": Pair(tensor, [tensor, "label"]), "array": numpy.ones(3), "n": 4}
    moved = to_device(data, META)
    assert moved["pair"].x.device == moved["pair"].y[0].device == META
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].y[1] == "label"
    assert moved["array"].device == META
    assert moved["array"].shape == (3,)
    assert moved["n"] == 4


def test_what_cannot_be_moved_stays_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Thing:
        pass

    thing, told_of = Thing(), set[type]()
    for _ in range(3):
        assert to_device([thing, {"x": thing}], META) == [thing, {"x": thing}]
    assert to_device(thing, META, told_of) is thing
    assert told_of == {Thing}
    (message, again) = [record.getMessage() for record in caplog.records]
    assert message == again
    assert "Thing; it stays as it is" in message


def test_a_tensor_that_is_there_already_is_not_copied() -> None:
    tensor = torch.zeros(2)
    assert to_device(tensor, torch.device("cpu")) is tensor


def test_pinning_reaches_whatever_can_be_pinned() -> None:
    class Pinnable:
        pinned = False

        def pin_memory(self) -> Pinnable:
            self.pinned = True
            return self

    things = [Pinnable() for _ in range(4)]
    data = pin({"a": [things[0], "x"], "b": (things[1], 3), "c": Pair(things[2], things[3])})
    assert all(thing.pinned for thing in things)
    assert data["a"][1] == "x"
    assert isinstance(data["c"], Pair)
