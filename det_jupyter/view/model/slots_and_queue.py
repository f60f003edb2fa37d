"""The part of a view's state about slots, queue and reasons for waiting.

It contains points in time instead of durations, so it changes, and is sent again, only when
something has happened.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic accepts no other before Python 3.12

from det_jupyter.contract.messages.resources import RemedyButton

SlotState = Literal["free", "used", "leaving", "occupied", "lost", "disabled"]


class Slot(TypedDict):
    """A slot and its occupant.

    Args:
        id: Its number on its agent.
        device: Its kind of device, in a few words.
        is_own: Whether the viewed experiment holds it.
        who: Its occupant in a few words, or its state: `free`, `disabled`.
        facts: All facts about it, each in a few words.
        experiment_id: None, like the next two fields, if no trial holds the slot.
    """

    id: int
    device: str
    state: SlotState
    is_own: bool
    who: str
    facts: list[str]
    experiment_id: int | None
    trial_id: int | None
    rank: int | None


class AgentBar(TypedDict):
    """An agent and its slots.

    Args:
        is_connected: Whether it is connected; an agent that has left has no slots.
        note: Its state if it is not connected, and unusual facts; "" if there are none.
        facts: Its name, computer, address and versions.
        more: A text with the number of slots that are left out.
    """

    id: str
    hostname: str
    pool: str
    is_connected: bool
    note: str
    facts: list[str]
    slots: list[Slot]
    more: str


class PoolSlots(TypedDict):
    """A pool's agents.

    `rules` is the pool's scheduling policy; `more` a text with the number of agents left out.
    """

    name: str
    rules: str
    counts: str
    agents: list[AgentBar]
    more: str


class Wait(TypedDict):
    """Why a trial of this experiment waits, when it is expected to start, and remedies.

    Args:
        key: Identifies the reason; it does not change with estimates and places in the queue. ""
            for a usual wait: for trials of the same search, or not for slots.
    """

    trial_id: int
    key: str
    sentence: str
    expected: str
    remedies: list[RemedyButton]


class QueueRow(TypedDict):
    """A trial that waits for slots. `place` counts from 1 within its pool."""

    place: int
    trial_id: int
    experiment: str
    is_own: bool
    pool: str
    slots: str
    since: str
    sentence: str


class SlotsAndQueue(TypedDict):
    """Slots and queue.

    Args:
        summary: All slots and the queue in one line: `8 slots: 6 used, 2 free · 3 waiting`.
        is_waiting: Whether a trial of this experiment waits for slots.
        queue: The front of the queue by pool and position, and this experiment's trials further
            back.
        num_waiting: The number of all waiting trials, in `queue` or not.
    """

    summary: str
    is_waiting: bool
    pools: list[PoolSlots]
    queue: list[QueueRow]
    num_waiting: int
