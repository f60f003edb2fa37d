"""The part of a view's state about slots and queue, and why a trial waits.

It is the same for as long as nothing happens: times in it are moments, not spans, so that it is
sent again only when something has changed.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic's fields take no other before Python 3.12

SlotState = Literal["free", "used", "leaving", "occupied", "disabled"]


class SlotBar(TypedDict):
    """One slot.

    Args:
        id: Its number on its agent.
        is_own: Whether the experiment that is shown has it.
        who: Who is on it, in a word or two; else what it is: `free`, `disabled`.
        facts: Everything that is known of it, each a few words.
    """

    id: int
    state: SlotState
    is_own: bool
    who: str
    facts: list[str]


class AgentBars(TypedDict):
    """An agent's slots. `note` is what is unusual about it; `more` counts slots left out."""

    id: str
    is_connected: bool
    note: str
    slots: list[SlotBar]
    more: str


class PoolBars(TypedDict):
    """A pool's agents. `rules` says how it decides; `more` counts agents left out."""

    name: str
    rules: str
    counts: str
    agents: list[AgentBars]
    more: str


class Remedy(TypedDict):
    """What would start a waiting trial.

    Args:
        id: What its button asks for.
        command: What to type for it; empty if there is nothing to type.
        button: What the button says that does the same; empty if there is none.
    """

    id: str
    sentence: str
    command: str
    button: str


class Wait(TypedDict):
    """Why a trial of this experiment waits, what would start it, and when that is expected."""

    trial_id: int
    sentence: str
    expected: str
    remedies: list[Remedy]


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


class Cluster(TypedDict):
    """Slots and queue.

    Args:
        summary: All of it in one line: `8 slots: 6 used, 2 free · 3 waiting`.
        is_waiting: Whether a trial of this experiment waits for slots.
        queue: In order, pool by pool: its front, and trials of this experiment further back.
        num_waiting: All that wait, shown in `queue` or not.
    """

    summary: str
    is_waiting: bool
    pools: list[PoolBars]
    queue: list[QueueRow]
    num_waiting: int
