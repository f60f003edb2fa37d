"""The trial's own reducers, for metrics that cannot be computed from the metrics of batches.

    every rank    update(...) in train_batch or evaluate_batch         any number of times
                  per_slot_reduce() -> this rank's values              at a report or a validation
    the chief     cross_slot_reduce([of rank 0, of rank 1, ...])       once; all ranks get it

Only the chief reduces across ranks: user code may return different values on each rank, since it
may draw random numbers, and ranks with different metrics would save at different batches.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle

from det_jupyter.contract.values.text import error_text
from det_jupyter.core import DistributedContext
from det_jupyter.core.argument_checks import to_json_value
from det_jupyter.core.together import settle
from det_jupyter.errors import InvalidHP
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.reducers.metric_reducer import (
    NOTHING,
    FunctionReducer,
    MetricReducer,
    keeps_state,
    merged_values,
    on_cpu,
    unchanged,
)

Phase = Literal["training", "validation"]
_WHERE = "wrap_reducer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedReducer:
    """A reducer that a trial has wrapped, and the phases in which its metrics are reported.

    Each method raises a TrialMistake that names the reducer and the phase if the user's code
    fails.
    """

    reducer: MetricReducer
    name: str | None  # name of its only metric; None: it returns a dict of metrics
    phases: tuple[Phase, ...]

    def reset(self, phase: str = "") -> None:
        """Reset the reducer."""
        with self._naming_failures("reset", phase):
            self.reducer.reset()

    def reduce_slot(self, phase: str) -> bytes:
        """Return the result of `per_slot_reduce` on this rank, pickled."""
        with self._naming_failures("per_slot_reduce", phase):
            # By value: classes defined in a notebook's cells cannot be imported by the chief.
            sent: bytes = cloudpickle.dumps(on_cpu(self.reducer.per_slot_reduce()))
        return sent

    def reduce_across(self, slots: Sequence[bytes], phase: str) -> dict[str, Any]:
        """Return the metrics of `cross_slot_reduce`, from the results of `reduce_slot`."""
        with self._naming_failures("cross_slot_reduce", phase):
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
    def _naming_failures(self, method: str, phase: str) -> Iterator[None]:
        """Raise a TrialMistake that names the reducer and method if the block fails."""
        try:
            yield
        except InvalidHP:
            raise
        except Exception as error:  # the user's reducer may raise anything
            if isinstance(self.reducer, FunctionReducer):
                method = "the function"
            when = f" ({phase})" if phase else ""
            failed = f"{self}{when}: {method} raised {error_text(error)}"
            raise mistake(failed) from error


class Reducers:
    """The reducers of a trial in the order in which it wrapped them, the same on all ranks.

    Attributes:
        took_part: Whether this rank has trained on records since the last report of the training.
    """

    def __init__(self) -> None:
        self.took_part = False
        self._entries: list[WrappedReducer] = []

    def wrap(
        self,
        reducer: Any,
        name: str | None = None,
        *,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """Register a reducer, as `context.wrap_reducer` does, and return the MetricReducer.

        Raises:
            TrialMistake: `reducer` is no reducer, is registered already, or its name is taken.
        """
        chosen: dict[Phase, bool] = {"training": for_training, "validation": for_validation}
        phases = tuple(phase for phase, is_chosen in chosen.items() if is_chosen)
        self._check(reducer, name, phases)
        if not isinstance(reducer, MetricReducer):
            reducer = FunctionReducer(reducer)
        entry = WrappedReducer(reducer=reducer, name=name, phases=phases)
        entry.reset()
        self._entries.append(entry)
        return entry.reducer

    def reset(self, phase: Phase) -> None:
        """Reset the reducers of the phase."""
        for entry in self._serving(phase):
            entry.reset(phase)
        if phase == "training":
            self.took_part = False

    def any(self, phase: Phase) -> bool:
        """Return whether the phase has any reducers."""
        return bool(self._serving(phase))

    def reduce(
        self,
        distributed: DistributedContext,
        phase: Phase,
        *,
        took_part: bool = True,
        taken: Collection[str] = (),
    ) -> dict[str, Any]:
        """Return the metrics of the phase's reducers. Collective, if there are any.

        Args:
            took_part: Whether this rank had any records; if not, its values are left out.
            taken: Names of the other metrics, which reducers may not return.

        Raises:
            TrialMistake: A reducer failed, or returned something that cannot be reported.
            PeerFailed: A reducer failed on another rank.
        """
        if not self.any(phase):
            return {}
        return settle(
            distributed,
            lambda: self.reduce_slots(phase) if took_part else None,
            lambda slots: self.reduce_across(
                [slot for slot in slots if slot is not None], phase, taken=taken
            ),
            on_chief=True,
        )

    def reduce_slots(self, phase: Phase) -> list[bytes]:
        """Return the result of each of the phase's reducers on this rank, pickled."""
        return [entry.reduce_slot(phase) for entry in self._serving(phase)]

    def reduce_across(
        self, slots: Sequence[list[bytes]], phase: Phase, *, taken: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the metrics of the phase's reducers.

        Args:
            slots: The results of `reduce_slots` on the ranks that had records, in rank order.
            phase: The phase.
            taken: Names of the other metrics, which reducers may not return.

        Raises:
            TrialMistake: A reducer failed, or returned something that cannot be reported.
        """
        entries = self._serving(phase)
        if any(len(slot) != len(entries) for slot in slots):
            counts = ", ".join(str(len(slot)) for slot in slots)
            raise mistake(
                f"the ranks have {counts} reducers; all ranks have to wrap the same ones"
            )
        metrics: dict[str, Any] = {}
        for index, entry in enumerate(entries):
            more = entry.reduce_across([slot[index] for slot in slots], phase)
            for name in more:
                if name in taken or name in metrics:
                    whose = "the trial returns" if name in taken else "another reducer returns"
                    raise mistake(f"{entry} returns the metric {name!r}, which {whose} as well")
            metrics |= more
        return metrics

    def describe(self) -> list[str]:
        """Return a description of each reducer: its name and phases."""
        return [f"{entry} for {' and '.join(entry.phases)}" for entry in self._entries]

    @property
    def are_there(self) -> bool:
        """Whether the trial has wrapped any."""
        return bool(self._entries)

    def state(self) -> dict[str, Any]:
        """Return this rank's state, for a checkpoint."""
        states = [
            entry.reducer.state_dict() if keeps_state(entry.reducer) else None
            for entry in self._entries
        ]
        return {"took_part": self.took_part, "states": states}

    def restore(self, slots: Sequence[dict[str, Any]], rank: int, size: int) -> None:
        """Restore what `state` returned.

        On another number of ranks, the values of functions are kept, in the order of the data; a
        MetricReducer loses its values since the last report, and a line on stderr reports it.

        Args:
            slots: The states of all ranks that saved, in their order.
            rank, size: This rank, and the present number of ranks.
        """
        if len(slots) == size:
            self.took_part = slots[rank]["took_part"]
        states = [slot["states"] for slot in slots]
        for index, entry in enumerate(self._entries):
            saved = [state[index] for state in states if index < len(state)]
            present = [state for state in saved if state is not None]
            if not present or not keeps_state(entry.reducer):
                continue
            if len(saved) == size and len(present) == size:
                entry.reducer.load_state_dict(present[rank])
            elif isinstance(entry.reducer, FunctionReducer):
                earlier = merged_values(present) if rank == 0 else []
                entry.reducer.load_state_dict({"earlier": earlier, "values": []})
            elif rank == 0:
                sys.stderr.write(
                    f"{entry}: its state is of {len(present)} ranks, and now there are {size}; "
                    "what it had seen since the last report is left out\n"
                )

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Undo the block's updates of training reducers; used for a batch without records."""
        with ExitStack() as stack:
            for entry in self._serving("training"):
                stack.enter_context(unchanged(entry.reducer))
            yield

    def _serving(self, phase: Phase) -> list[WrappedReducer]:
        return [entry for entry in self._entries if phase in entry.phases]

    def _check(self, reducer: Any, name: Any, phases: tuple[Phase, ...]) -> None:
        if isinstance(reducer, type) and issubclass(reducer, MetricReducer):
            raise mistake(f"got the class {reducer.__name__}; create one: {reducer.__name__}()")
        if not isinstance(reducer, MetricReducer) and not callable(reducer):
            raise mistake(
                f"got a {type(reducer).__name__}, expected a MetricReducer, "
                "or a function of the list of values"
            )
        if name is not None and not (isinstance(name, str) and name):
            raise mistake(f"got name {name!r}, expected a string, or None for a dict of metrics")
        if not phases:
            raise mistake("neither for training nor for validation; it would never be reported")
        for entry in self._entries:
            if entry.reducer is reducer:
                raise mistake(f"{entry} is wrapped already; wrap each reducer once")
            shares_phase = not set(phases).isdisjoint(entry.phases)
            if name is not None and entry.name == name and shares_phase:
                raise mistake(f"there is a {entry} already; give this one another name")


def mistake(problem: str) -> TrialMistake:
    """Return a TrialMistake of `wrap_reducer`."""
    return TrialMistake(_WHERE, f"{_WHERE}: {problem}")
