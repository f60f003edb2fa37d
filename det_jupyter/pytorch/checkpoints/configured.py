"""Which values of restored optimizers and schedulers are new, and which are as saved.

    built then    a value as the trial built it when the training of the checkpoint began
    saved         the value in the checkpoint: after schedules, and changes by users
    built now     as the trial has built it in this run

One rule for all of them: if hyperparameters were changed since, a value that the trial builds
differently now is taken as built now, and every other value as saved. The present learning rate
keeps its ratio to the initial one, so a schedule continues at the new rate. If no hyperparameter
was changed, all values are as saved (a rate may depend on the number of slots). A schedule whose
form was changed (`T_max`, for example) continues at the rate that it would have now if the
training had begun with it, where torch can compute this rate (`_get_closed_form_lr`).

    lr                             hyperparameter 0.1 → 0.01, StepLR has made 0.05 of it: 0.005
    initial_lr, base_lrs, max_lr   built now
    weight_decay, betas, gamma     built now, if they were changed
    exp_avg, last_epoch, best      saved: they are equal in all builds
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy
import torch
from torch.optim import lr_scheduler

from det_jupyter.pytorch.steps.learning_rates import set_rate
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

Built = dict[str, Any]


def describe_built(context: PyTorchTrialContext) -> Built:
    """Return the values of optimizers and schedulers as the trial has built them."""
    groups = [[_values(group) for group in each.param_groups] for each in context.optimizers]
    schedulers = [item.scheduler.state_dict() for item in context.lr_schedulers]
    return copy.deepcopy({"optimizers": groups, "lr_schedulers": schedulers})


def apply_configured(context: PyTorchTrialContext, then: Built, now: Built) -> list[str]:
    """Set the values of restored optimizers and schedulers that are built differently now.

    Args:
        context: Has the optimizers and schedulers, already restored from the checkpoint.
        then, now: Results of `describe_built`, in the run of the checkpoint and in this run.

    Returns:
        Lines that describe what has changed: `SGD: lr 0.1 → 0.01`.
    """
    scheduled = Counter(id(item.scheduler.optimizer) for item in context.lr_schedulers)
    described = []
    both = zip(context.optimizers, then["optimizers"], now["optimizers"], strict=False)
    for optimizer, before, after in both:
        found: dict[str, None] = {}  # a dict, because groups usually change alike
        # A group that was added while training has no counterpart, and stays as saved.
        for group, was, made in zip(optimizer.param_groups, before, after, strict=False):
            changes = _change_group(group, was, made, is_scheduled=id(optimizer) in scheduled)
            found |= dict.fromkeys(changes)
        described += _of(optimizer, found)
    items = zip(context.lr_schedulers, then["lr_schedulers"], now["lr_schedulers"], strict=False)
    for item, was, made in items:
        changed, found = _changed_state(item.scheduler.state_dict(), was, made)
        if changed is not None:
            item.scheduler.load_state_dict(changed)
        if found and scheduled[id(item.scheduler.optimizer)] == 1:
            found |= dict.fromkeys(_on_new_curve(item.scheduler))
        described += _of(item.scheduler, found)
    for item in context.lr_schedulers:
        _show_rates(item.scheduler)
    return described


def built_otherwise(then: Built, now: Built) -> list[str]:
    """Return what is built differently now although no hyperparameter was changed."""
    groups = zip(then["optimizers"], now["optimizers"], strict=False)
    return [
        f"{name} {_text(was[name])} → {_text(made[name])}"
        for before, after in groups
        for was, made in list(zip(before, after, strict=False))[:1]
        for name in made
        if name in was and not _is_same(was[name], made[name])
    ]


def _change_group(
    group: dict[str, Any], was: Built, made: Built, *, is_scheduled: bool
) -> Iterator[str]:
    names = [name for name in made if name not in was or not _is_same(was[name], made[name])]
    rate = group.get("lr")
    if "lr" in names and rate is not None:
        initial: Any = group.get("initial_lr", was["lr"] if is_scheduled else rate)
        own: Any = made.get("initial_lr", made["lr"])
        new = own * (float(rate) / float(initial)) if float(initial) else own
        yield f"lr {_text(rate)} → {_text(new)}"
        set_rate(group, "lr", new)
    for name in names:
        if name != "lr" and name in group:
            if name != "initial_lr":  # its change is reported as one of lr
                yield f"{name} {_text(group[name])} → {_text(made[name])}"
            group[name] = copy.deepcopy(made[name])


_OF_RATES = ("_last_lr", "base_lrs")  # their changes are reported as one of lr
# Their `get_lr` depends on the step only, not on the present rate.
_OF_THE_STEP = (lr_scheduler.CosineAnnealingWarmRestarts, lr_scheduler.CyclicLR)


def _changed_state(saved: Any, was: Any, made: Any) -> tuple[Any, dict[str, None]]:
    """Return a scheduler's state with the values built now, and descriptions of these values.

    The state is None if no value is built differently now.
    """
    found: dict[str, None] = {}
    changed: dict[str, Any] = {}
    if not all(isinstance(each, Mapping) for each in (saved, was, made)):
        return None, found
    for name, value in made.items():
        if name not in was or name not in saved or _is_same(was[name], value):
            continue
        if name == "_schedulers":  # of ChainedScheduler and SequentialLR
            inner = [
                _changed_state(*each) for each in zip(saved[name], was[name], value, strict=False)
            ]
            news = [new for new, _ in inner]
            changed[name] = [
                state if new is None else new
                for state, new in zip_longest(saved[name], news[: len(saved[name])])
            ]
            found |= {each: None for _, names in inner for each in names}
            continue
        changed[name] = copy.deepcopy(value)
        if name not in _OF_RATES and not name.startswith("_"):
            found[f"{name} {_text(saved[name])} → {_text(value)}"] = None
    return ({**saved, **changed} if changed else None), found


def _on_new_curve(scheduler: Any) -> Iterator[str]:
    """Set the rates that the schedule would have now if the training had begun with it.

    Yields a description of each change. Changes only schedulers of torch with a closed form for
    their rates: other schedulers multiply the present rate, so the rate at the end of a shorter
    schedule, often 0, would stay.
    """
    # A user's own subclass may compute other rates.
    is_torchs = type(scheduler).__module__.startswith("torch.optim.")
    closed_form = getattr(scheduler, "_get_closed_form_lr", None)
    if isinstance(scheduler, _OF_THE_STEP):
        closed_form = scheduler.get_lr
    if closed_form is None or not is_torchs:
        return
    with warnings.catch_warnings(action="ignore"):  # `get_lr` is meant for the scheduler's step
        rates = closed_form()
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        if not _is_same(group["lr"], rate):
            yield f"lr {_text(group['lr'])} → {_text(rate)}"
            set_rate(group, "lr", rate)


def _show_rates(scheduler: Any) -> None:
    """Set the rates that a scheduler, and those in it, report as last to the present ones."""
    if hasattr(scheduler, "_last_lr"):
        rates = [group["lr"] for group in scheduler.optimizer.param_groups]
        scheduler._last_lr = [r.clone() if isinstance(r, torch.Tensor) else r for r in rates]
    for inner in getattr(scheduler, "_schedulers", ()):
        _show_rates(inner)


def _of(owner: Any, changes: Mapping[str, None]) -> list[str]:
    return [f"{type(owner).__name__}: {', '.join(changes)}"] if changes else []


def _values(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, or cannot be compared: then the saved one stays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    try:
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return torch.equal(torch.as_tensor(one).cpu(), torch.as_tensor(other).cpu())
        if isinstance(one, numpy.ndarray) or isinstance(other, numpy.ndarray):
            return numpy.array_equal(one, other)
        return bool(one == other)
    except Exception:  # `__eq__` may be code of the user; a tensor and None
        return True


def _text(value: Any) -> str:
    value = value.tolist() if isinstance(value, torch.Tensor) else value
    return f"{value:g}" if isinstance(value, float) else str(value)
