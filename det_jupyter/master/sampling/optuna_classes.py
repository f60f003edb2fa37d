"""Optuna's samplers and pruners by name: existing classes, their arguments, and construction.

A configuration names a class and its arguments. Names may be short: `tpe`, `cma-es` and `qmc` are
TPESampler, CmaEsSampler and QMCSampler. If an argument is itself a sampler or pruner, it is given
by its name, or by its name with arguments:

    pruner: patient
    pruner_args: {patience: 3, wrapped_pruner: {name: median, n_startup_trials: 8}}

Optuna is imported at its first use: most searches do not use it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from det_jupyter.errors import Problem
from det_jupyter.searcher.optuna_space import Dimension

INSTALL = "pip install 'det-jupyter[optuna]'"


@dataclass(frozen=True, slots=True)
class ClassKind:
    """A kind of class of Optuna.

    Attributes:
        word: The word for it in messages, and the ending of class names.
        module: Optuna's module with these classes.
        base: Name of their base class.
        ours: Names that select an implementation of det_jupyter instead.
    """

    word: str
    module: str
    base: str
    ours: tuple[str, ...] = ()


SAMPLER = ClassKind("sampler", "optuna.samplers", "BaseSampler")
PRUNER = ClassKind("pruner", "optuna.pruners", "BasePruner", ours=("asha", "none"))
_NSGAII = "optuna.samplers.nsgaii"
_OBJECT_ARGS = {  # arguments that are objects
    "independent_sampler": SAMPLER,
    "wrapped_pruner": replace(PRUNER, ours=()),
    "crossover": ClassKind("crossover", _NSGAII, "BaseCrossover"),
    "mutation": ClassKind("mutation", _NSGAII, "BaseMutation"),
}
_EXCLUDED = {  # by class: the alternative
    "GridSampler": "searcher `grid` trains every point of a grid",
    "PartialFixedSampler": "a hyperparameter is fixed by giving its value as a constant",
}
_FUNCTION = "takes a function, which a configuration cannot hold; remove it"
_UNSUPPORTED_ARGS = {
    "seed": "follows from reproducibility.experiment_seed; remove it",
    "source_trials": "takes trials of another study, which a configuration cannot hold; remove it",
    "gamma": _FUNCTION,
    "weights": _FUNCTION,
    "constraints_func": _FUNCTION,
    "child_generation_strategy": _FUNCTION,
    "after_trial_strategy": _FUNCTION,
    "elite_population_selection_strategy": _FUNCTION,
}
_NEEDED_PACKAGES = {
    "CmaEsSampler": ("cmaes",),
    "GPSampler": ("scipy", "torch"),
    "QMCSampler": ("scipy",),
}
# Classes whose only state is the trials. Others store attributes in the study, which have to be
# rebuilt after a restart (optuna_study.py).
_STATELESS = {
    "RandomSampler", "TPESampler", "GPSampler", "BruteForceSampler",
    "NopPruner", "MedianPruner", "PercentilePruner", "ThresholdPruner", "WilcoxonPruner",
}  # fmt: skip


def find_missing_optuna() -> Problem | None:
    """Return a problem if Optuna cannot be imported."""
    importlib.invalidate_caches()  # Optuna may have been installed since the last check
    try:
        importlib.import_module("optuna")
    except ImportError:
        return Problem(
            "searcher.name",
            "got 'optuna', which needs the package optuna where the master runs "
            f"({sys.executable}); {INSTALL} there, and submit again",
        )
    return None


def class_names(kind: ClassKind) -> list[str]:
    """Return the names of the classes of this kind that a configuration can name."""
    module = importlib.import_module(kind.module)
    base = getattr(module, kind.base)
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and not inspect.isabstract(value)
        and not name.startswith(("_", "Base"))
        and name not in _EXCLUDED
    ]


def find_name(kind: ClassKind, name: str) -> str | None:
    """Return the full name of a class by its full or short name; None if there is none."""
    by_short = {_short(kind, full): full for full in class_names(kind)}
    return by_short.get(_short(kind, name))


def _short(kind: ClassKind, name: str) -> str:
    letters = "".join(letter for letter in name.lower() if letter.isalnum())
    return letters.removesuffix(kind.word)


def keeps_state(part: object) -> bool:
    """Return whether a sampler or pruner stores state in the study in addition to the trials."""
    return type(part).__name__ not in _STATELESS


def make(
    kind: ClassKind, name: str, args: Mapping[str, Any], *, seed: int = 0, search_seed: int = 0
) -> Any:
    """Construct a sampler, a pruner, or an object that is an argument of these.

    Args:
        kind: What to construct.
        name: The name of its class, for which find_part_problems has found no problem.
        args: Its arguments, from the configuration.
        seed: The seed of its random numbers, which differs for each trial.
        search_seed: The seed of a quasi-random sequence; all trials of the search are its points.
    """
    full_name = find_name(kind, name)
    assert full_name is not None, "find_part_problems has checked it"
    module = importlib.import_module(kind.module)
    cls = getattr(module, full_name)
    parameters = inspect.signature(cls).parameters
    kwargs = dict(args)
    for key, value in args.items():
        if key in _OBJECT_ARGS and value is not None:
            inner_name, inner_args = _name_and_args(value)
            kwargs[key] = make(_OBJECT_ARGS[key], inner_name, inner_args, seed=seed)
    if full_name == "QMCSampler":
        kwargs.setdefault("independent_sampler", module.RandomSampler(seed=seed))
        kwargs["seed"] = search_seed
    elif "seed" in parameters:
        kwargs["seed"] = seed
    if "constant_liar" in parameters:  # off by default before Optuna 5: consider running trials
        kwargs.setdefault("constant_liar", True)
    return cls(**kwargs)


def _name_and_args(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, Mapping):
        return str(value), {}
    return str(value.get("name")), {key: value[key] for key in value if key != "name"}


def find_part_problems(
    kind: ClassKind, name: str, args: Mapping[str, Any], path: str, args_path: str
) -> Iterator[Problem]:
    """Yield the problems of a class name at `path` and of its arguments at `args_path`."""
    full_name = find_name(kind, name)
    if full_name is None:
        yield Problem(path, f"got {name!r}, {_explain_unknown(kind, name)}")
        return
    for package in _NEEDED_PACKAGES.get(full_name, ()):
        if importlib.util.find_spec(package) is None:
            yield (
                Problem(
                    path,
                    f"{full_name} needs the package {package} where the master runs "
                    f"({sys.executable}); {INSTALL} there, and submit again",
                )
            )
    cls = getattr(importlib.import_module(kind.module), full_name)
    yield from _find_argument_problems(cls, args, args_path)


def _explain_unknown(kind: ClassKind, name: str) -> str:
    for other, reason in _EXCLUDED.items():
        if _short(kind, other) == _short(kind, name):
            return f"which has no use here: {reason}"
    names = [*kind.ours, *class_names(kind)]
    shorts = {_short(kind, full): full for full in names}
    ours = f"{', '.join(kind.ours)} or " if kind.ours else ""
    expected = f"expected {ours}the name of a {kind.word} of Optuna"
    if near := get_close_matches(name, names):
        return f"{expected}; did you mean {near[0]}?"
    if near := get_close_matches(_short(kind, name), shorts):
        return f"{expected}; did you mean {shorts[near[0]]}?"
    return f"{expected}: {', '.join(sorted(names))}"


def _find_argument_problems(cls: type, args: Mapping[str, Any], path: str) -> Iterator[Problem]:
    parameters = inspect.signature(cls).parameters
    usable = [key for key in parameters if key not in _UNSUPPORTED_ARGS]
    for key, value in args.items():
        here = f"{path}.{key}"
        if key not in parameters:
            near = get_close_matches(str(key), usable)
            expected = f"one of {', '.join(sorted(usable))}" if usable else "nothing"
            hint = f"did you mean {near[0]}?" if near else f"expected {expected}"
            yield Problem(here, f"{cls.__name__} does not take it; {hint}")
        elif key in _UNSUPPORTED_ARGS:
            yield Problem(here, _UNSUPPORTED_ARGS[key])
        elif key in _OBJECT_ARGS and value is not None:
            name, inner = _name_and_args(value)
            name_path = f"{here}.name" if isinstance(value, Mapping) else here
            yield from find_part_problems(_OBJECT_ARGS[key], name, inner, name_path, here)
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in args:
            yield Problem.missing(f"{path}.{key}", f"; {cls.__name__} needs it")


def distribution_of(dimension: Dimension) -> Any:
    """Return Optuna's distribution for a range; for a categorical one, over indices of values."""
    from optuna import distributions

    low, high = dimension.bounds
    if dimension.kind == "categorical":
        return distributions.CategoricalDistribution(range(int(high) + 1))
    if dimension.kind == "int":
        return distributions.IntDistribution(int(low), int(high))
    return distributions.FloatDistribution(low, high, log=dimension.kind == "log")
