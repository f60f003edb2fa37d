"""Calls of handles with wrong arguments are answered with the right call."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.calls import explains_arguments, methods_explain_arguments
from det_jupyter.client.compare import fetch_experiments
from det_jupyter.errors import UsageError

EXPERIMENT: Any = Experiment(object.__new__(Client), 7)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            lambda: EXPERIMENT.continue_(max_length={"epochs": 9}),
            "continue_: no argument max_length; it takes changes of the configuration: "
            "continue_({\"searcher.max_length\": {'epochs': 9}})",
        ),
        (
            lambda: EXPERIMENT.fork(max_restart=2),
            "fork: no argument max_restart; it takes changes of the configuration: "
            'fork({"max_restarts": 2})',
        ),
        (
            lambda: EXPERIMENT.change_search(max_trial=14),
            "change_search: no argument max_trial; write change_search(max_trials=14)",
        ),
        (
            lambda: EXPERIMENT.archive(now=True),
            "archive: no argument now; it takes none",
        ),
        (
            lambda: EXPERIMENT.set_priority(),
            "set_priority: missing a required argument: 'priority'; it takes priority",
        ),
        (
            lambda: fetch_experiments(EXPERIMENT, [[1, 4]]),  # type: ignore[list-item]
            "compare: got a list; name the experiments one by one: compare(1, 4)",
        ),
    ],
)
def test_a_wrong_call_is_answered_with_the_right_one(call: Any, answer: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == answer


def test_an_error_inside_the_function_stays_what_it_is() -> None:
    @explains_arguments
    def add(number: Any) -> Any:
        return number + 1

    assert add(1) == 2
    with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
        add("1")


def test_only_public_methods_of_a_class_explain_their_arguments() -> None:
    @methods_explain_arguments
    class Handle:
        size = 3

        def shown(self, name: str) -> str:
            return name

        def _hidden(self, name: str) -> str:
            return name

    handle: Any = Handle()
    assert (handle.shown("a"), handle._hidden("b"), handle.size) == ("a", "b", 3)
    with pytest.raises(UsageError, match=r"^shown: no argument nam; write shown\(name=1\)$"):
        handle.shown(nam=1)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        handle._hidden(nam=1)
