"""Calls of handles with wrong arguments are answered with the right call."""

from __future__ import annotations

from typing import Any

import pytest

import det_jupyter
from det_jupyter.client import Client, Experiment
from det_jupyter.client.calls import explains_arguments, methods_explain_arguments
from det_jupyter.config.dotted_changes import SHORT, read_changes
from det_jupyter.config.tree import is_in_list, paths_by_name
from det_jupyter.errors import UsageError

CONFIG_NAMES = sorted(paths_by_name().keys() - {"config", "trial", "checkpoint"})
DET: Any = det_jupyter  # for calls that a type checker refuses
EXPERIMENT: Any = Experiment(object.__new__(Client), 7)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            lambda: EXPERIMENT.continue_(max_length={"epochs": 9}),
            "continue_: no argument max_length; it takes changes of the configuration: "
            'continue_({"searcher.max_length": {"epochs": 9}})',
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
            lambda: EXPERIMENT.continue_(lr=0.1),
            "continue_: no argument lr; it takes changes of the configuration: "
            'continue_({"hyperparameters.lr": 0.1})',
        ),
        (
            lambda: EXPERIMENT.continue_(**{"hyperparameters.width": 1}),
            "continue_: no argument hyperparameters.width; it takes changes of the "
            'configuration: continue_({"hyperparameters.width": 1})',
        ),
        (
            lambda: EXPERIMENT.continue_(epochs=9, slots=2, name="b"),
            "continue_: no argument epochs or slots or name; it takes changes of the "
            'configuration: continue_({"searcher.max_length.epochs": 9, "slots": 2, '
            "\"name\": 'b'})",
        ),
        (
            lambda: EXPERIMENT.fork(
                {"name": "b"}, batch_size=3, trial=EXPERIMENT, queue_anyways=True
            ),
            "fork: no argument batch_size or queue_anyways; it takes changes of the "
            "configuration: "
            'fork({"name": \'b\', "hyperparameters.batch_size": 3}, trial=7, '
            "queue_anyway=True)",
        ),
        (
            lambda: EXPERIMENT.fork(on=["failed"]),
            "fork: no argument on; it takes config, trial, checkpoint, queue_anyway",
        ),
        (
            lambda: DET.preview({}, max_trials=3),
            "preview: no argument max_trials; it takes config, template, seconds_per_batch, "
            "estimate",
        ),
        (
            lambda: DET.experiment(),
            "experiment: missing a required argument: 'which'; it takes which",
        ),
        (
            lambda: DET.submit("x"),
            "submit: missing a required argument: 'config'; it takes trial, config, context, "
            "include, follow_links, queue_anyway, allow_large, overrides",
        ),
        (
            lambda: DET.submit(Client, config={"name": "b"}),
            "submit: config must be given without a name; write submit(Client, {\"name\": 'b'})",
        ),
        (
            lambda: DET.compare([1, 4]),
            "compare: got a list; name the experiments one by one: compare(1, 4)",
        ),
        (
            lambda: DET.compare(1, [2, EXPERIMENT], {1}),
            "compare: got a list; name the experiments one by one: compare(1, 2, 7)",
        ),
        (
            lambda: EXPERIMENT.compare(range(1, 90)),
            "compare: got a range; name the experiments one by one, at most 7: "
            "compare(1, 2, 3, 4, 5, 6, 8)",
        ),
        (
            lambda: EXPERIMENT.compare([2]),
            "compare: got a list; name the experiments one by one: compare(2)",
        ),
        (
            lambda: DET.compare(experiments=[5, 6]),
            "compare: experiments must be given without a name; write compare(5, 6)",
        ),
        (
            lambda: DET.submit(config="a.yaml", trial=Client, slots=2),
            "submit: trial and config must be given without a name; write "
            "submit(Client, 'a.yaml', slots=2)",
        ),
        (
            lambda: DET.compare([5]),
            "compare: got a list; name two experiments or more, one by one",
        ),
        (
            lambda: EXPERIMENT.fork(width=3),
            "fork: no argument width; it takes config, trial, checkpoint, queue_anyway; a "
            'hyperparameter is changed by fork({"hyperparameters.width": 3})',
        ),
        (
            lambda: EXPERIMENT.logs(tail="x"),
            "logs: tail: got 'x', expected a whole number of lines, or None for all",
        ),
        (
            lambda: EXPERIMENT.compare_trials((3, 4)),
            "compare_trials: got a tuple; name the trials one by one: compare_trials(3, 4)",
        ),
        (
            lambda: EXPERIMENT.wait("3"),
            "wait: timeout: got '3', expected a number of seconds, or None",
        ),
        (
            lambda: EXPERIMENT.pause(True),
            "pause: timeout: got True, expected a number of seconds, or None",
        ),
        (
            lambda: EXPERIMENT.tensorboard(5),
            "tensorboard: folder: got 5, expected the path of a folder, as text or a Path",
        ),
        (
            lambda: EXPERIMENT.on_end(3),
            "on_end: callback: got 3, expected a function, which is called with the experiment",
        ),
    ],
)
def test_a_wrong_call_is_answered_with_the_right_one(call: Any, answer: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == answer


@pytest.mark.parametrize("name", CONFIG_NAMES)
def test_a_change_that_is_offered_is_one_of_the_configuration(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        EXPERIMENT.fork(**{name: 1})
    _, _, call = str(caught.value).partition("changes of the configuration: ")
    changes: list[Any] = []
    if call:
        eval(call, {"fork": changes.append})
        read_changes(changes[0])
        (path,) = changes[0]
        parts = SHORT.get(path, path).split(".")
        assert parts[-1] == name or path == name
        assert parts[0] == "hyperparameters" or not is_in_list(path)


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
