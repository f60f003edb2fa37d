"""Something runs while it has a listener, and all of them are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from det_jupyter.reader.listeners import Listeners


def test_it_runs_from_the_first_listener_to_the_last() -> None:
    said: list[str] = []

    def start() -> object:
        said.append("start")
        return lambda: said.append("stop")

    listeners: Listeners[[]] = Listeners(start)  # type: ignore[arg-type]
    assert listeners.is_idle
    leave = [listeners.add(lambda: None), listeners.add(lambda: None)]
    leave[0]()
    leave[0]()
    assert said == ["start"]
    assert not listeners.is_idle
    leave[1]()
    assert said == ["start", "stop"]
    listeners.add(lambda: None)
    assert said == ["start", "stop", "start"]


def test_one_that_raises_keeps_no_other_from_being_told() -> None:
    listeners: Listeners[[int]] = Listeners(lambda: lambda: None)
    told: list[int] = []

    def failing(number: int) -> None:
        raise ValueError(f"fault {number}")

    listeners.add(failing)
    listeners.add(told.append)
    listeners.add(lambda number: failing(-number))
    with pytest.raises(ValueError, match=r"^fault 7$"):
        listeners.notify(7)
    assert told == [7]


def test_a_start_that_fails_is_tried_again_for_the_next() -> None:
    errors = [RuntimeError("can't start new thread")]

    def start() -> Callable[[], None]:
        if errors:
            raise errors.pop()
        return told.clear

    told: list[str] = []
    listeners: Listeners[[]] = Listeners(start)
    with pytest.raises(RuntimeError):
        listeners.add(lambda: told.append("first"))
    assert listeners.is_idle
    leave = listeners.add(lambda: told.append("second"))
    listeners.notify()
    assert told == ["second"]
    leave()
    assert told == []
