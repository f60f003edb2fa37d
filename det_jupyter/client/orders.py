"""Changes and profiles of a trial while it trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from det_jupyter.client.asking import ask_for
from det_jupyter.client.client import Client
from det_jupyter.contract.messages import (
    AllocationState,
    ChangeResources,
    ChangeTrial,
    ProfileTrial,
    ProfileView,
    TraceView,
    TrialChangeView,
    TrialView,
)
from det_jupyter.contract.messages.rank_orders import MAX_TRACE_BYTES, to_text
from det_jupyter.contract.values.text import size
from det_jupyter.errors import ConfigError, Conflict

T = TypeVar("T")

_POLL_S = 0.1
_OPEN_WITH = "Open with https://ui.perfetto.dev or chrome://tracing."


class Trace:
    """A trace of one rank: a file that Perfetto opens, or why there is none."""

    def __init__(self, view: TraceView) -> None:
        self.view = view

    @property
    def path(self) -> Path | None:
        """The file, `.json.gz`; None: there is none, or it was removed for newer ones."""
        path = Path(self.view.path)
        return path if self.view.path and path.is_file() else None

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        return self.view.size_bytes

    @property
    def rank(self) -> int:
        """The rank that it is of."""
        return self.view.rank

    @property
    def batches(self) -> range:
        """The batches in it, counted from 0."""
        return range(self.view.first, self.view.first + self.view.steps)

    def __repr__(self) -> str:
        view = self.view
        if view.error:
            return f"Rank {view.rank}: no trace: {view.error}"
        note = f" ({view.note})" if view.note else ""
        removed = "" if self.path else ", removed since"
        last = view.first + view.steps - 1
        what = f"batches {view.first} to {last}{note}, {size(view.size_bytes)}"
        return f"Rank {view.rank}: {what}: {view.path}{removed}"


class Traces(list[Trace]):
    """The traces of one profile, by rank; prints as lines."""

    def __repr__(self) -> str:
        lines = [repr(trace) for trace in self]
        return "\n".join([*lines, _OPEN_WITH] if any(trace.path for trace in self) else lines)


class TrialChange:
    """A change of a trial while it trained."""

    def __init__(self, view: TrialChangeView) -> None:
        self.view = view

    @property
    def steps_completed(self) -> int | None:
        """Batches completed when it took effect; None: not yet, or it was refused."""
        return self.view.steps_completed

    def __repr__(self) -> str:
        view = self.view
        what = view.text or to_text(view.change)
        if view.error:
            return f"{what}: refused: {view.error}"
        steps = view.steps_completed
        return f"{what}, {'when it trains' if steps is None else f'from batch {steps}'}"


class OrderedTrial:
    """The part of a handle on a trial that orders something from its ranks."""

    _client: Client
    id: int

    def profile(
        self,
        steps: int = 10,
        ranks: Iterable[int] = (0,),
        *,
        max_bytes: int = MAX_TRACE_BYTES,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        timeout: float = 300.0,
    ) -> Traces:
        """Record the next batches with torch.profiler while it trains, and return the traces.

        Args:
            steps: Batches to record, at most 1000; fewer are recorded if `max_bytes` requires it.
            ranks: On which ranks.
            max_bytes: Limit of each trace, compressed.
            record_shapes, profile_memory, with_stack: As in torch.profiler.profile.
            timeout: Seconds to wait for the traces.

        Raises:
            Conflict: It does not train, is being profiled, or there is no trace in time.
            ConfigError: An argument cannot be used.
        """
        request = ask_for(
            ProfileTrial,
            trial_id=self.id,
            steps=steps,
            ranks=list(ranks),
            max_bytes=max_bytes,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
        )
        asked = self._client.change(request).profiles[-1].id

        def find(view: TrialView) -> ProfileView | None:
            return next((p for p in view.profiles if p.id == asked and p.is_over), None)

        done = self._await(find, timeout)
        if done is None:
            raise Conflict(self._too_late("trace", timeout, "trial.profiles() lists it later"))
        return Traces(Trace(trace) for trace in done.traces)

    def profiles(self) -> list[Traces]:
        """Return the traces of its latest profiles, oldest first."""
        views = self._client.trial(self.id).profiles
        return [Traces(Trace(trace) for trace in view.traces) for view in views]

    def change(
        self,
        *,
        lr: float | None = None,
        lr_factor: float | None = None,
        optimizer: int | None = None,
        min_validation_period: dict[str, int] | int | None = None,
        priority: int | None = None,
        timeout: float = 60.0,
    ) -> TrialChange | None:
        """Change it while it trains, on all ranks after the same batch.

        Later runs repeat the change at that batch, so a trial that is paused and continued trains
        as if it had not been.

        Args:
            lr: The learning rate from now on. What schedulers compute later changes in proportion.
            lr_factor: Multiplies all learning rates, and what schedulers compute, instead.
            optimizer: Only of this optimizer, counted from 0; with `lr` if there are several.
            min_validation_period: As in the configuration, such as {"batches": 50}.
            priority: Of its experiment.
            timeout: Seconds to wait until it has taken effect.

        Returns:
            The change; None if only the priority was changed.

        Raises:
            Conflict: It is not active, or its ranks refuse the change.
            ConfigError: An argument cannot be used.
        """
        view = self._client.trial(self.id)
        given = {
            "lr": lr,
            "lr_factor": lr_factor,
            "optimizer": optimizer,
            "min_validation_period": min_validation_period,
        }
        # Both are checked before either is sent.
        changes_loop = any(value is not None for value in given.values())
        change = ask_for(ChangeTrial, trial_id=self.id, **given) if changes_loop else None
        resources = None
        if priority is not None:
            about = view.experiment_id
            resources = ask_for(ChangeResources, experiment_id=about, priority=priority)
        if change is None and resources is None:
            raise ConfigError(["change: got nothing to change"])
        if change is not None:
            view = self._client.change(change)
        if resources is not None:
            self._client.change(resources)
        if change is None:
            return None
        return self._await_change(view.changes[-1].id, timeout)

    def changes(self) -> list[TrialChange]:
        """Return its changes while it trained, oldest first."""
        return [TrialChange(view) for view in self._client.trial(self.id).changes]

    def _await_change(self, change_id: int, timeout: float) -> TrialChange:
        def find(view: TrialView) -> TrialChangeView | None:
            found = next(change for change in view.changes if change.id == change_id)
            is_open = found.steps_completed is None and not found.error
            state = view.allocation and view.allocation.state
            may_answer = state in (AllocationState.STARTING, AllocationState.RUNNING)
            return None if is_open and may_answer else found

        made = self._await(find, timeout)
        if made is None:
            later = "trial.changes() shows when it takes effect"
            raise Conflict(self._too_late("effect", timeout, later))
        if made.error:
            raise Conflict(f"trial {self.id} cannot be changed: {made.error}")
        return TrialChange(made)

    def _await(self, find: Callable[[TrialView], T | None], timeout: float) -> T | None:
        """Return what is found in the trial's view, or None after the time."""
        deadline = time.monotonic() + timeout
        while (found := find(self._client.trial(self.id))) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)
        return found

    def _too_late(self, what: str, timeout: float, later: str) -> str:
        view = self._client.trial(self.id)
        captured = self._client.experiment(view.experiment_id).capsule
        kinds = {name.type for name in captured.captured if name.name == captured.entrypoint}
        late = f"trial {self.id}: no {what} within {timeout:g} s; {later}"
        if "function" in kinds:
            late += (
                f". Its entrypoint {captured.entrypoint} is a function; only the loop of "
                "pytorch.Trainer.fit takes orders, so a function that does not call it cannot be "
                "profiled or changed"
            )
        return late
