"""Runs that a user starts by hand, which are those of `det_jupyter.core.init(name=...)`."""

from __future__ import annotations

import atexit
import sys
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from det_jupyter import core
from det_jupyter.core import DistributedContext as DistributedContext
from det_jupyter.core import PreemptMode as PreemptMode
from det_jupyter.core import TensorboardMode as TensorboardMode
from determined._lacking import error

_context: core.Context | None = None
_error_before: object = None  # that of an earlier cell, as the run begins


@dataclass(kw_only=True)
class Config:
    """What a run is called and compared by; without effect in an experiment, and where marked."""

    name: str | None = None
    hparams: dict[str, Any] | None = None
    data: dict[str, Any] | None = None  # without effect
    description: str | None = None  # without effect
    labels: list[str] | None = None
    workspace: str | None = None  # without effect
    project: str | None = None  # without effect
    checkpoint_storage: str | None = None  # a folder
    searcher: dict[str, Any] | None = None  # its metric and smaller_is_better
    external_experiment_id: str | None = None  # a label
    external_trial_id: str | None = None  # a part of the name; the last run of that name goes on


DefaultConfig = UnmanagedConfig = Config


def init_context(
    *,
    config: Config | None = None,
    defaults: Config | None = None,
    unmanaged: Config | None = None,
    client: object = None,  # without effect: the master is this user's
    **arguments: Any,
) -> core.Context:
    """Return the context of a run, to be used in a `with` block."""
    of = asdict(config or defaults or Config())
    of |= {key: value for key, value in asdict(unmanaged or Config()).items() if not of[key]}
    name = " ".join(filter(None, (of["name"], of["external_trial_id"])))
    searcher = of["searcher"] or {}
    return core.init(
        name=name or f"unmanaged-{uuid.uuid4().hex[:8]}",
        hparams=of["hparams"],
        labels=[*(of["labels"] or ()), *filter(None, [of["external_experiment_id"]])],
        resume=of["external_trial_id"] is not None,
        metric=searcher.get("metric", "loss"),
        smaller_is_better=searcher.get("smaller_is_better", True),
        **{"checkpoint_storage": of["checkpoint_storage"]} | arguments,
    )


def init(**arguments: Any) -> None:
    """Begin a run, as `init_context`; its parts are attributes of this module until `close`."""
    global _context, _error_before
    close()
    _error_before = _last_error()
    _context = init_context(**arguments).__enter__()


def close(failure: BaseException | None = None) -> None:
    """End the run that `init` has begun, if it has not ended."""
    global _context
    context, _context = _context, None
    if context is not None:
        context.__exit__(type(failure) if failure else None, failure, None)


@atexit.register
def _close_at_exit() -> None:
    error = _last_error()  # that has ended the script
    close(None if error is _error_before else error)


def _last_error() -> BaseException | None:
    return getattr(sys, "last_value", None)


def url_reverse_webui_exp_view() -> str:
    """Return the command that shows the experiment."""
    return f"det e describe {__getattr__('info').experiment_id}"


def __getattr__(name: str) -> Any:
    if name not in ("train", "checkpoint", "distributed", "preempt", "searcher", "info"):
        raise error(__name__, name)
    if _context is None:
        raise AttributeError(f"core_v2.{name}: there is no run; call core_v2.init() first")
    return getattr(_context, name)
