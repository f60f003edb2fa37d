"""Facts for reasons that a snapshot does not have: names, expected ends, withheld slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Protocol

from det_jupyter.contract.messages import DeviceFault, DeviceProcess, Estimate
from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Title:
    """The name of an experiment, and the notebook that it was submitted from."""

    name: str
    notebook: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Slots of a connected agent that exist, but are not given out.

    Args:
        disabled: Slots disabled by hand, including those that a gang still holds (draining).
        occupied: By slot, the processes that use it and are not ours. A slot may be both.
        lost: By slot, devices that do not work until they are reset.
        host: Name of the agent's computer; "": the master's.
    """

    disabled: tuple[int, ...] = ()
    occupied: Mapping[int, Sequence[DeviceProcess]] = field(default_factory=dict)
    lost: Mapping[int, DeviceFault] = field(default_factory=dict)
    host: str = ""

    @property
    def disabled_only(self) -> list[int]:
        """Slots that enabling would make usable."""
        return [slot for slot in self.disabled if slot not in {*self.occupied, *self.lost}]

    @property
    def occupied_only(self) -> list[int]:
        """Slots that are unusable only because other processes use them."""
        return [slot for slot in sorted(self.occupied) if slot not in {*self.disabled, *self.lost}]

    @property
    def lost_only(self) -> list[int]:
        """Slots that are unusable only because their devices do not work."""
        others = {*self.disabled, *self.occupied}
        return [slot for slot in sorted(self.lost) if slot not in others]


class Facts(Protocol):
    """Data that the master adds to the snapshots of its pools.

    The master's state must not change while they are used.
    """

    @property
    def now(self) -> float:
        """UTC seconds."""

    @property
    def zone(self) -> tzinfo | None:
        """Time zone of the times of day in sentences; None: this computer's."""

    @property
    def pool_name(self) -> str:
        """Name of the pool."""

    @property
    def own_user(self) -> str:
        """The user that the master runs as, whose processes may be ended; "": unknown."""

    def trial_of(self, request_id: str) -> int:
        """Return the id of the trial that an allocation is a run of."""

    def title_of(self, experiment_id: int) -> Title:
        """Return the title of an experiment."""

    def end_of(self, request_id: str) -> Estimate | None:
        """Return when a running gang is expected to release its slots; None: unknown."""

    def leaves_by(self, request_id: str) -> float | None:
        """Return the deadline of a leaving gang, UTC seconds; None: it is being killed."""

    def may_ask_again(self, experiment_id: int) -> bool:
        """Return whether an experiment's search may still make trials, or promote some."""

    def queues_again(self, request_id: str) -> bool:
        """Return whether the trial of a leaving gang will queue again."""

    def withheld(self) -> Mapping[str, Withheld]:
        """Return the slots that are not given out, by connected agent of the pool."""

    def gone(self) -> Sequence[AgentSlots]:
        """Return the pool's agents that have left, with the slots that they would offer.

        An agent that is also in the pool's snapshot offers nothing now.
        """

    def left_at(self, agent_id: str) -> float | None:
        """Return when an agent in `gone` left, UTC seconds; None: it may return at any moment."""

    def other_pools(self) -> Mapping[str, Snapshot]:
        """Return the other pools by name, in the order in which reasons offer them."""
