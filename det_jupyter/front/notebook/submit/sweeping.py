"""`det_jupyter.sweep`: a search over the arguments of a function, by one call.

The configuration that it makes is one of `random`, `grid`, `adaptive_asha` or `optuna`; problems
with it are raised in the terms of the call: `trials`, not `searcher.max_trials`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import FunctionType
from typing import Any, Literal, get_args

from det_jupyter.client.calls import explains_arguments
from det_jupyter.config import path_of_change
from det_jupyter.contract.messages import State
from det_jupyter.contract.schema.hyperparameters import is_nested
from det_jupyter.contract.trial.rank_arguments import RANK_ARGUMENTS, find_function_problem
from det_jupyter.contract.trial.source import function_of, returned_metrics, returns_of
from det_jupyter.contract.values.direction import is_smaller_better
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError, NotFound, Problem
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.front.notebook.submit.from_python import submit_call

SearcherName = Literal["random", "grid", "asha", "tpe"]

_IN_THE_CALL = {  # what a key of the configuration is in the call
    "entrypoint": "train",
    "hyperparameters": "space",
    "resources.slots_per_trial": "slots",
    "searcher.name": "searcher",
    "searcher.metric": "metric",
    "searcher.max_trials": "trials",
    "searcher.max_length": "max_length",
    "searcher.smaller_is_better": "smaller_is_better",
}


@explains_arguments
def sweep(
    train: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    metric: str,
    trials: int | None = None,
    searcher: SearcherName = "random",
    max_length: int | Mapping[str, int] | None = None,
    smaller_is_better: bool | None = None,
    slots: int = 1,
    wait: bool = True,
    **overrides: Any,
) -> NotebookExperiment:
    """Search the arguments with which a function gives the best metric; return the experiment.

        def train(lr, width):
            ...
            return loss

        found = det_jupyter.sweep(
            train, {"lr": hp.log(1e-5, 1e-1), "width": [32, 64]}, metric="loss", trials=50
        )
        found.best, found.trials_table(), found.plot()

    It shows its progress and waits until all trials are over. An interrupt ends the waiting only.
    A trial that fails does not end the sweep.

    Args:
        train: The function. It takes hyperparameters by name, or `hparams`; a number or dict that
            it returns is the trial's validation. Each value that it yields is the validation of
            its next step, after which the search may end the trial. Or a trial class.
        space: The hyperparameters by name: a list or `range` of values, a range of
            `det_jupyter.hp`, or a constant; a dict is a group of them.
        metric: Name of what is returned or yielded, or of one of the numbers in the dict.
        trials: Number of trials; a grid trains every point once.
        searcher: "random"; "grid"; "asha", which ends bad trials early; "tpe", which learns from
            the trials before (Optuna has to be installed).
        max_length: How many values a trial yields at most; a trial class needs its length, such as
            {"epochs": 4}.
        smaller_is_better: Whether the smallest metric is the best; by default its name decides:
            accuracy, f1 and their like are better if they are larger.
        slots: Number of slots of a trial.
        wait: Whether to wait for the end.
        overrides: Options and changes of the configuration, as `submit` takes them: `name`,
            `context`, `**{"searcher.max_concurrent_trials": 4}`.

    Raises:
        ConfigError: Everything that is wrong with the call.
        CaptureError: Everything that cannot be sent to the ranks.
        RankFailed: All trials have failed; the message has the first one's traceback.
        NotFound: All trials have ended without the metric.
    """
    is_sound = isinstance(train, type | FunctionType)
    problems = [
        *(_find_trial_problems(train, space) if is_sound else [_no_function(train)]),
        *_find_search_problems(train, metric, trials, searcher, max_length),
        *_find_misspelled(overrides),
    ]
    section = _method(train, searcher) | {
        "metric": metric,
        "smaller_is_better": _direction(metric, smaller_is_better),
        "max_length": 1 if max_length is None else max_length,
    }
    if searcher != "grid":
        section["max_trials"] = 1 if trials is None else trials
    document = {
        "hyperparameters": _specs(space) if isinstance(space, Mapping) else {},
        "searcher": section,
        "resources": {"slots_per_trial": slots},
        "max_restarts": 0,
    }
    known = {problem.path for problem in problems}
    try:
        experiment = submit_call(train if is_sound else None, document, problems, **overrides)
    except ConfigError as error:
        found = dict.fromkeys(_in_the_call(problem) for problem in error.problems)
        own = [problem for problem in found if problem.path not in known or problem in problems]
        raise ConfigError(own) from None
    if wait and experiment.wait() is State.COMPLETED:
        _check_result(experiment)
    return experiment


def _no_function(train: Any) -> Problem:
    text = f"got {train!r:.60}, expected a function, such as `def train(lr): ...; return loss`"
    return Problem("train", text)


def _find_trial_problems(train: Any, space: Any) -> Iterator[Problem]:
    """Yield the problems with the function's parameters and the space."""
    if not isinstance(space, Mapping):
        text = f"got {space!r:.60}, expected a dict of hyperparameters by name, such as "
        yield Problem("space", f'{text}{{"lr": hp.log(1e-5, 1e-1), "width": [32, 64]}}')
        return
    if isinstance(train, type):
        return
    if said := find_function_problem(train, space):
        yield Problem("train", f"{train.__name__} {said}")
    taken = list(inspect.signature(train, follow_wrapped=False).parameters)
    for name in space:
        if name in RANK_ARGUMENTS:
            text = f"ranks give an argument {name} themselves; choose another name"
            yield Problem(f"space.{name}", text)
        elif name not in taken and "hparams" not in taken:
            near = get_close_matches(str(name), taken, 1)
            hint = (
                f"; did you mean {near[0]}?" if near else f" (it has {', '.join(taken) or 'none'})"
            )
            yield Problem(f"space.{name}", f"{train.__name__} has no such parameter{hint}")


def _find_search_problems(
    train: Any, metric: Any, trials: Any, searcher: Any, max_length: Any
) -> Iterator[Problem]:
    names = get_args(SearcherName)
    if searcher not in names:
        yield Problem("searcher", f"got {searcher!r:.60}, expected {listed(names, last='or')}")
    if searcher == "grid" and trials is not None:
        text = f"got {trials!r:.60}, but a grid trains every point once; leave it out"
        yield Problem("trials", text)
    elif searcher != "grid" and trials is None:
        yield Problem.missing("trials", "; say how many trials there are, such as trials=50")
    if isinstance(train, FunctionType):
        yield from _find_result_problems(train, metric)
    is_short = _returns_only(train)
    if is_short and searcher == "asha":
        text = (
            f"got 'asha', which compares trials while they train, but {train.__name__} returns "
            f"only at its end; let it `yield` {metric} after each step, or take another searcher"
        )
        yield Problem("searcher", text)
    elif max_length is None and not is_short and isinstance(train, type | FunctionType):
        what = 'how long a trial trains, such as max_length={"epochs": 4}'
        if _yields(train):
            what = "how many values a trial yields at most, such as max_length=20"
        yield Problem.missing("max_length", f"; say {what}")


def _find_misspelled(overrides: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each override that is no key, but nearly an argument."""
    arguments = list(inspect.signature(sweep).parameters)
    for name in overrides:
        near = get_close_matches(name, arguments, 1)
        if near and not path_of_change(name)[1]:
            yield Problem(name, f"no such argument; did you mean {near[0]}?")


def _returns_only(train: Any) -> bool:
    """Return whether the function has one result, at its end, and cannot report before."""
    if not isinstance(train, FunctionType) or _yields(train):
        return False
    return {"core_context", "context"}.isdisjoint(inspect.signature(train).parameters)


def _yields(train: Any) -> bool:
    return isinstance(train, FunctionType) and inspect.isgeneratorfunction(inspect.unwrap(train))


def _find_result_problems(train: FunctionType, metric: Any) -> Iterator[Problem]:
    """Yield a problem if the function's source shows that it gives no such metric."""
    parsed = function_of(train) if _returns_only(train) else None
    if parsed is None or parsed.decorator_list or hasattr(train, "__wrapped__"):
        return
    name = train.__name__
    if not any(each.value is not None for each in returns_of(parsed)):
        text = f"{name} returns nothing; let it return {metric}, or `yield` it after each step"
        yield Problem("train", text)
    returned = returned_metrics(parsed)
    if returned.is_all and metric not in returned.names:
        text = f"got {metric!r:.60}, but {name} returns {', '.join(returned.names) or 'no metric'}"
        yield Problem("metric", text)


def _method(train: Any, searcher: str) -> dict[str, Any]:
    """Return the part of the searcher's section that the method itself needs."""
    is_class = isinstance(train, type)
    match searcher:
        case "asha":  # one bracket; a function cannot go on where it rested
            return {"name": "adaptive_asha", "mode": "aggressive", "stop_once": not is_class}
        case "tpe":
            pruner = "asha" if is_class or _yields(train) else "none"
            return {"name": "optuna", "sampler": "tpe", "pruner": pruner}
        case "grid":
            return {"name": "grid"}
    return {"name": "random"}


def _direction(metric: Any, smaller_is_better: Any) -> Any:
    if smaller_is_better is not None or not isinstance(metric, str):
        return smaller_is_better
    return is_smaller_better(metric) is not False


def _specs(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a configuration.

    >>> _specs({"width": [32, 64], "depth": range(2, 5), "bias": True})["depth"]
    {'type': 'int', 'minval': 2, 'maxval': 4, 'count': 3}
    """
    return {name: _spec(value) for name, value in space.items()}


def _spec(value: Any) -> Any:
    if is_nested(value):
        return _specs(value)
    if isinstance(value, range) and value.step == 1 and len(value) > 1:
        ends = {"minval": value.start, "maxval": value[-1]}
        return {"type": "int", **ends, "count": len(value)}
    if getattr(value, "ndim", 0) == 1:  # an array
        value = value.tolist()
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple | range):
        return {"type": "categorical", "vals": list(value)}
    return value


def _in_the_call(problem: Problem) -> Problem:
    """Return a problem with the name that its key has in the call."""
    for key, name in _IN_THE_CALL.items():
        if problem.path == key or problem.path.startswith(f"{key}."):
            return replace(problem, path=f"{name}{problem.path.removeprefix(key)}")
    return problem


def _check_result(experiment: NotebookExperiment) -> None:
    """Raise NotFound if no trial has the metric."""
    view = experiment.view
    if any(trial.best_metric is not None for trial in view.trials):
        return
    notices = [notice for trial in view.trials for notice in trial.notices]
    why = f": {notices[0]}" if notices else ""
    raise NotFound(f"experiment {view.id}: no trial has reported {view.metric}{why}")
