"""Finds trainers of other libraries that this process calls without DetCallback.

Nothing is saved then, so the user gets a notice during the training. If something else may save (a
callback that is not the library's own, another trainer with DetCallback), the notice is written
when the training is over. It is shown only if there is no checkpoint.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from det_jupyter.contract.run.journal import Notice
from det_jupyter.contract.trial.plain_trainers import describe_plain
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.timings.after_import import after_import

# By module: the class, its method that trains, and the libraries of its own callbacks.
_TRAINERS = {
    "transformers.trainer": ("Trainer", "train", {"transformers"}),
    "lightning.pytorch.trainer.trainer": ("Trainer", "fit", {"lightning"}),
    "pytorch_lightning.trainer.trainer": ("Trainer", "fit", {"pytorch_lightning"}),
    "keras.src.models.model": ("Model", "fit", {"keras"}),
}
_PLACE_IN_FIT = 5  # position of `callbacks` among the arguments of Keras' `fit`


def watch_trainers(sink: RecordSink, entrypoint: str) -> None:
    """Write a notice if a trainer is called without DetCallback from now on. Call it once.

    Args:
        sink: Stores the notice.
        entrypoint: The entrypoint that calls the trainer, as text of the configuration.
    """
    noted: list[str] = []

    def note(name: str) -> None:
        if not noted:
            noted.append(name)
            text = describe_plain(name, entrypoint)
            sink.write(Notice(at=time.time(), rank=0, text=text, trainer=name))

    for module, (owner, _, _) in _TRAINERS.items():
        after_import(module, partial(_wrap, module, note), has=owner)


def _wrap(module: str, note: Callable[[str], None]) -> None:
    owner, method, libraries = _TRAINERS[module]
    kind = getattr(sys.modules[module], owner)
    train = getattr(kind, method)
    name = f"{min(libraries)}.{owner}"

    @wraps(train)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        callbacks = list(_callbacks_of(self, args, kwargs))
        kinds = [base for each in callbacks for base in type(each).__mro__]
        if any(_root(base) == "det_jupyter" for base in kinds):
            return train(self, *args, **kwargs)
        is_ours = any(each.startswith("det_jupyter.integrations.") for each in [*sys.modules])
        if not is_ours and all(_root(type(each)) in libraries for each in callbacks):
            note(name)
        trained = train(self, *args, **kwargs)
        note(name)
        return trained

    setattr(kind, method, noted)


def _callbacks_of(trainer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterable[Any]:
    if (handler := getattr(trainer, "callback_handler", None)) is not None:
        return handler.callbacks  # type: ignore[no-any-return]  # of transformers
    found = getattr(trainer, "callbacks", None)  # of Lightning
    if found is None:
        found = kwargs.get("callbacks", args[_PLACE_IN_FIT] if len(args) > _PLACE_IN_FIT else ())
    found = getattr(found, "callbacks", found)  # a CallbackList of Keras
    return found if isinstance(found, Iterable) else [found] if found is not None else []


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]
