"""Orders to the ranks of a running trial: changes of its training, and profiles.

The id of an order is the number of the event that caused it, so it is unique. Orders are carried
out by ascending id. All ranks carry out an order after the same batch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, PrintableText, Rank, StrictCount, Timestamp
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.text import count

MAX_PROFILED_STEPS = 1000
MAX_TRACE_BYTES = 64 * 1024**2  # bytes of one rank's trace, compressed

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Profile(Wire):
    """What torch.profiler is to record of a running trial.

    Args:
        steps: Number of batches.
        ranks: The ranks that record.
        max_bytes: Limit of each rank's compressed trace; if necessary, fewer batches are recorded.
        record_shapes, profile_memory, with_stack: As in torch.profiler.profile.
    """

    steps: Annotated[StrictCount, Field(ge=1, le=MAX_PROFILED_STEPS)] = 10
    ranks: Annotated[list[Rank], Field(min_length=1, max_length=64)] = [0]
    max_bytes: Annotated[StrictCount, Field(ge=1024, le=1024**3)] = MAX_TRACE_BYTES
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False


class Change(Wire):
    """A change of a running trial; None leaves a value unchanged."""

    # The learning rate, from now on; a scheduler's later values change in proportion.
    lr: Rate | None = None
    # Multiplies all learning rates instead, and what schedulers compute.
    lr_factor: Rate | None = None
    # Index of the optimizer, from 0; required with `lr` if there are several.
    optimizer: StrictCount | None = None
    # As in the configuration; 0: validate only at the end.
    min_validation_period: Length | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.lr is not None and self.lr_factor is not None:
            raise ValueError("change: got lr and lr_factor, expected one of them")
        if self.optimizer is not None and self.lr is None and self.lr_factor is None:
            raise ValueError("change: got optimizer alone, expected lr or lr_factor too")
        if self.lr is None and self.lr_factor is None and self.min_validation_period is None:
            raise ValueError("change: got nothing to change")
        return self


class ProfileOrder(Wire):
    """An order to record a profile."""

    kind: Literal["profile"] = "profile"
    id: int
    profile: Profile


class ChangeOrder(Wire):
    """An order to change something."""

    kind: Literal["change"] = "change"
    id: int
    change: Change
    # Batches completed when it took effect: a later run repeats it there. None: not yet.
    steps_completed: Count | None = None


Order = Annotated[ProfileOrder | ChangeOrder, Field(discriminator="kind")]


class TraceView(Wire):
    """A trace that a rank has recorded, or why there is none."""

    rank: int
    path: str = ""  # the file, a Chrome trace as `.json.gz`; Perfetto opens it
    size_bytes: int = 0
    first: int = 0  # batches completed before the first one in it
    steps: int = 0  # number of batches in it
    error: PrintableText = ""  # why there is no file
    note: PrintableText = ""  # why it has fewer batches than were requested


class ProfileView(Wire):
    """A profile that was requested, with the traces of the ranks that are done."""

    id: int
    at: Timestamp
    profile: Profile
    traces: list[TraceView] = []

    @property
    def is_over(self) -> bool:
        """Whether every rank has recorded its trace, or failed to."""
        return len(self.traces) == len(self.profile.ranks)


class TrialChangeView(Wire):
    """A change of a trial while it trained, or of its hyperparameters when it was continued."""

    id: int
    at: Timestamp
    change: Change | None = None  # None: hyperparameters
    steps_completed: int | None = None  # batches completed when it took effect; None: not yet
    text: PrintableText = ""  # what it changed: `lr 0.1 → 0.05`
    error: PrintableText = ""  # why it was refused
    former_hparams: dict[str, Any] = {}  # values before the change, by dotted name
    # False once a later configuration has another min_validation_period.
    keeps_period: bool = True

    @property
    def what(self) -> str:
        """What the order changes: `lr 0.1 → 0.05`, or before it has taken effect, `lr 0.05`."""
        return self.text or ("" if self.change is None else to_text(self.change))

    @property
    def sentence(self) -> str:
        """What the order has changed and when; "" if it has not taken effect."""
        if self.steps_completed is None or self.error:
            return ""
        return f"{self.what} after batch {self.steps_completed}"


class SizeChange(Wire):
    """An elastic trial has another number of slots from now on."""

    at: Timestamp
    slots: int
    steps_completed: int
    reason: str

    def __str__(self) -> str:
        return f"{count(self.slots, 'slot')}: {self.reason}"


def to_text(change: Change) -> str:
    """Format a change: its values by name.

    >>> to_text(Change(lr_factor=0.5, min_validation_period=Length("epochs", 1)))
    'lr_factor 0.5, min_validation_period 1 epochs'
    """
    given = [
        (name, getattr(change, name)) for name in ("lr", "lr_factor", "min_validation_period")
    ]
    return ", ".join(f"{name} {value}" for name, value in given if value is not None)
