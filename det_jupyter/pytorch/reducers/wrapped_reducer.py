"""A reducer that a trial has wrapped, with its phases; errors name it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle

from det_jupyter.contract.values.text import error_text
from det_jupyter.core.values import to_json_value
from det_jupyter.errors import InvalidHP
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.reducers.metric_reducer import (
    NOTHING,
    FunctionReducer,
    MetricReducer,
    on_cpu,
)

Phase = Literal["training", "validation"]
WHERE = "wrap_reducer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedReducer:
    """A reducer, and the phases whose metrics it adds to.

    Every method may raise a TrialMistake that names the reducer and the phase.
    """

    reducer: MetricReducer
    name: str | None  # of its one metric; None: it returns a dict of metrics
    phases: tuple[Phase, ...]

    def reset(self, phase: str = "") -> None:
        """Let it forget what it was given."""
        with self._telling("reset", phase):
            self.reducer.reset()

    def per_slot(self, phase: str) -> bytes:
        """Return what it has seen on this rank, ready to be sent."""
        with self._telling("per_slot_reduce", phase):
            # By value: what a notebook's cells define cannot be imported on the other side.
            sent: bytes = cloudpickle.dumps(on_cpu(self.reducer.per_slot_reduce()))
        return sent

    def across(self, slots: Sequence[bytes], phase: str) -> dict[str, Any]:
        """Return its metrics, from what `per_slot` returned on each rank."""
        with self._telling("cross_slot_reduce", phase):
            result = self.reducer.cross_slot_reduce([cloudpickle.loads(slot) for slot in slots])
        if result is NOTHING:
            return {}
        if self.name is None and not isinstance(result, dict):
            raise mistake(
                f"{self} returned a {type(result).__name__}, expected a dict of metrics; "
                "or give it a name: wrap_reducer(reducer, name=...)"
            )
        if self.name is not None and isinstance(result, dict):
            raise mistake(
                f"{self} returned a dict, expected one metric, because it has a name; "
                "leave the name out to report a dict of metrics"
            )
        metrics = result if self.name is None else {self.name: result}
        try:
            return {
                str(name): to_json_value(f"metric {name!r}", item)
                for name, item in metrics.items()
            }
        except ValueError as error:
            raise mistake(f"{self}: {error}") from None

    def __str__(self) -> str:
        if self.name is not None:
            return f"reducer {self.name!r}"
        if isinstance(self.reducer, FunctionReducer):
            function = self.reducer.function
            return f"reducer {getattr(function, '__name__', type(function).__name__)}"
        return f"reducer {type(self.reducer).__name__}"

    @contextmanager
    def _telling(self, method: str, phase: str) -> Iterator[None]:
        """Say whose method it was that failed; its own traceback stays with the error."""
        try:
            yield
        except InvalidHP:
            raise
        except Exception as error:
            if isinstance(self.reducer, FunctionReducer):
                method = "the function"
            when = f" ({phase})" if phase else ""
            failed = f"{self}{when}: {method} raised {error_text(error)}"
            raise mistake(failed) from error


def mistake(problem: str) -> TrialMistake:
    """Return the error to raise."""
    return TrialMistake(WHERE, f"{WHERE}: {problem}")
