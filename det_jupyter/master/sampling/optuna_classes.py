"""Samplers and pruners of Optuna by name: which there are, what they take, and making one.

A configuration names a class and its arguments. Names may be short: `tpe`, `cma-es` and `qmc` are
TPESampler, CmaEsSampler and QMCSampler. An argument that is such an object itself is a name too,
or a name with arguments:

    pruner: patient
    pruner_args: {patience: 3, wrapped_pruner: {name: median, n_startup_trials: 8}}

Optuna is imported when it is needed first: most searches do without.
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
class Kind:
    """A sort of class, and where Optuna has those."""

    word: str
    module: str
    base: str
    ours: tuple[str, ...] = ()  # names that mean something of ours instead


SAMPLER = Kind("sampler", "optuna.samplers", "BaseSampler")
PRUNER = Kind("pruner", "optuna.pruners", "BasePruner", ours=("asha", "none"))
_NSGAII = "optuna.samplers.nsgaii"
_PARTS = {  # arguments that are objects
    "independent_sampler": SAMPLER,
    "wrapped_pruner": replace(PRUNER, ours=()),
    "crossover": Kind("crossover", _NSGAII, "BaseCrossover"),
    "mutation": Kind("mutation", _NSGAII, "BaseMutation"),
}
_OTHERWISE = {
    "GridSampler": "searcher `grid` trains every point of a grid",
    "PartialFixedSampler": "a hyperparameter is fixed by giving its value as a constant",
}
_FUNCTION = "takes a function, which a configuration cannot hold; remove it"
_UNFIT_ARGS = {
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
# All they go by is in the trials. Others write notes, which have to be made again (sampling.py).
_WITHOUT_NOTES = {
    "RandomSampler", "TPESampler", "GPSampler", "BruteForceSampler",
    "NopPruner", "MedianPruner", "PercentilePruner", "ThresholdPruner", "WilcoxonPruner",
}  # fmt: skip


def find_missing_optuna() -> Problem | None:
    """Return a problem if Optuna cannot be imported."""
    importlib.invalidate_caches()  # it may have been installed since we looked last
    try:
        importlib.import_module("optuna")
    except ImportError:
        return Problem(
            "searcher.name",
            "got 'optuna', which needs the package optuna where the master runs "
            f"({sys.executable}); {INSTALL} there, and submit again",
        )
    return None


def class_names(kind: Kind) -> list[str]:
    """Return the names of the classes that can be asked for."""
    module = importlib.import_module(kind.module)
    base = getattr(module, kind.base)
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and not inspect.isabstract(value)
        and not name.startswith(("_", "Base"))
        and name not in _OTHERWISE
    ]


def find_name(kind: Kind, name: str) -> str | None:
    """Return the full name of a class that may be given by a short one."""
    by_short = {_short(kind, known): known for known in class_names(kind)}
    return by_short.get(_short(kind, name))


def _short(kind: Kind, name: str) -> str:
    letters = "".join(letter for letter in name.lower() if letter.isalnum())
    return letters.removesuffix(kind.word)


def writes_notes(name: str) -> bool:
    """Return whether the class goes by notes that it wrote at earlier calls."""
    return name not in _WITHOUT_NOTES


def make(
    kind: Kind, name: str, args: Mapping[str, Any], *, seed: int = 0, search_seed: int = 0
) -> Any:
    """Make a sampler or pruner.

    Args:
        seed: For what it draws, another one for each trial.
        search_seed: For a sequence that all trials are points of.
    """
    full_name = find_name(kind, name)
    assert full_name is not None, "find_part_problems knows"
    module = importlib.import_module(kind.module)
    cls = getattr(module, full_name)
    taken = _parameters(cls)
    kwargs = {key: _made(key, value, seed=seed) for key, value in args.items()}
    if full_name == "QMCSampler":
        kwargs.setdefault("independent_sampler", module.RandomSampler(seed=seed))
        kwargs["seed"] = search_seed
    elif "seed" in taken:
        kwargs["seed"] = seed
    if "constant_liar" in taken:  # trials that run are to be known; before Optuna 5 they were not
        kwargs.setdefault("constant_liar", True)
    return cls(**kwargs)


def _made(key: str, value: Any, *, seed: int) -> Any:
    if key not in _PARTS or value is None:
        return value
    name, args = _name_and_args(value)
    return make(_PARTS[key], name, args, seed=seed)


def _name_and_args(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, Mapping):
        return str(value), {}
    return str(value.get("name")), {key: value[key] for key in value if key != "name"}


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls).parameters)


def find_part_problems(
    kind: Kind, name: str, args: Mapping[str, Any], path: str, args_path: str
) -> Iterator[Problem]:
    """Yield one line for everything that is wrong with a name and its arguments."""
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
    yield from _find_wrong_args(cls, args, args_path)


def _explain_unknown(kind: Kind, name: str) -> str:
    for other, reason in _OTHERWISE.items():
        if _short(kind, other) == _short(kind, name):
            return f"which has no use here: {reason}"
    names = [*kind.ours, *class_names(kind)]
    shorts = {_short(kind, known): known for known in names}
    ours = f"{', '.join(kind.ours)} or " if kind.ours else ""
    expected = f"expected {ours}the name of a {kind.word} of Optuna"
    if near := get_close_matches(name, names, n=1):
        return f"{expected}; did you mean {near[0]}?"
    if near := get_close_matches(_short(kind, name), shorts, n=1):
        return f"{expected}; did you mean {shorts[near[0]]}?"
    return f"{expected}: {', '.join(sorted(names))}"


def _find_wrong_args(cls: type, args: Mapping[str, Any], path: str) -> Iterator[Problem]:
    taken = _parameters(cls)
    usable = [key for key in taken if key not in _UNFIT_ARGS]
    for key, value in args.items():
        here = f"{path}.{key}"
        if key not in taken:
            near = get_close_matches(str(key), usable, n=1)
            expected = f"one of {', '.join(sorted(usable))}" if usable else "nothing"
            hint = f"did you mean {near[0]}?" if near else f"expected {expected}"
            yield Problem(here, f"{cls.__name__} does not take it; {hint}")
        elif key in _UNFIT_ARGS:
            yield Problem(here, _UNFIT_ARGS[key])
        elif key in _PARTS and value is not None:
            name, inner = _name_and_args(value)
            name_path = f"{here}.name" if isinstance(value, Mapping) else here
            yield from find_part_problems(_PARTS[key], name, inner, name_path, here)
    for key, parameter in taken.items():
        if parameter.default is parameter.empty and key not in args:
            yield Problem.missing(f"{path}.{key}", f"; {cls.__name__} needs it")


def distribution_of(dimension: Dimension) -> Any:
    """Return a range as Optuna has it; a categorical one, over the places of its values."""
    from optuna import distributions

    low, high = dimension.bounds
    if dimension.kind == "categorical":
        return distributions.CategoricalDistribution(range(int(high) + 1))
    if dimension.kind == "int":
        return distributions.IntDistribution(int(low), int(high))
    return distributions.FloatDistribution(low, high, log=dimension.kind == "log")
