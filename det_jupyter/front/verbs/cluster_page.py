"""Slots and queues as HTML that needs neither script nor style sheet, in the theme's colours.

A slot is a small box with its number, a word or two, and a border and pattern of its own for each
state: colour alone has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from det_jupyter.contract.messages import AgentStatus, ClusterView, QueueEntry, SlotStatus
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.contract.values.text import count, shortened
from det_jupyter.front.verbs.cluster_text import (
    MOST_AGENTS,
    MOST_LINES,
    agent_title,
    entry_title,
    folded,
    followers_title,
    idle_hints,
    pool_line,
    signs,
    slot_text,
    summary,
)
from det_jupyter.front.verbs.tables import Listing, html_table

_LINE = "var(--jp-border-color1, currentColor)"
_BOX = (
    "display:inline-block;box-sizing:border-box;width:7.5em;height:3.4em;margin:2px;"
    "padding:2px 5px;overflow:hidden;white-space:nowrap;text-overflow:ellipsis;"
    "vertical-align:top;font-size:90%;"
)
_FILL = "var(--jp-layout-color3, rgba(127,127,127,.35))"
_STRIPES = f"repeating-linear-gradient(45deg,transparent 0 5px,{_FILL} 5px 8px)"
_LOOKS = {
    "used": f"border:2px solid currentColor;background:{_FILL}",
    "leaving": f"border:2px dashed currentColor;background:{_FILL}",
    "free": f"border:1px solid {_LINE}",
    "occupied": f"border:2px double currentColor;background:{_STRIPES}",
    "disabled": f"border:1px dotted {_LINE};opacity:.6;text-decoration:line-through",
}


def ledger_page(view: ClusterView, notes: Sequence[str] = ()) -> str:
    """Return all slots as boxes, agent by agent; notes below them."""
    is_short = sum(len(a.slots) for p in view.pools for a in p.agents) <= MOST_LINES
    parts = []
    for pool in view.pools:
        parts.append(f"<p><b>{escape(pool_line(pool))}</b></p>")
        parts += [_agent(agent, view.at, is_short=is_short) for agent in pool.agents[:MOST_AGENTS]]
        if hidden := pool.agents[MOST_AGENTS:]:
            slots = [slot for agent in hidden for slot in agent.slots]
            parts.append(f"<p>… and {len(hidden):,} more agents: {escape(summary(slots))}</p>")
    parts += [f"<p>{escape(hint)}</p>" for hint in (*idle_hints(view, NOTEBOOK), *notes)]
    return f"<div>{''.join(parts) or 'There is no pool.'}</div>"


def _agent(agent: AgentStatus, at: float, *, is_short: bool) -> str:
    title = escape(agent_title(agent))
    if not agent.connected:
        return f"<div>{title}, {count(len(agent.slots), 'slot')}</div>"
    if not is_short:
        return f"<div>{title} <code>{signs(agent)}</code> {escape(summary(agent.slots))}</div>"
    boxes = "".join(_box(slot, at) for slot in agent.slots)
    return f'<div style="margin-bottom:4px"><div>{title}</div>{boxes}</div>'


def _box(slot: SlotStatus, at: float) -> str:
    whole = escape(f"slot {slot.slot.id} ({slot.slot.name}): {slot_text(slot, at)}", quote=True)
    first, second = _words(slot)
    return (
        f'<span title="{whole}" style="{_BOX}{_LOOKS[slot.state]}">'
        f"<b>{slot.slot.id}</b> {escape(first)}<br>{escape(second)}</span>"
    )


def _words(slot: SlotStatus) -> tuple[str, str]:
    """Return the two lines of a box: its state, and what holds it."""
    if slot.experiment_id is not None:
        return slot.state, f"exp {slot.experiment_id} trial {slot.trial_id}"
    if slot.processes:
        return slot.state, shortened(slot.processes[0].notebook or slot.processes[0].command)
    return slot.state, ""


def queue_page(view: ClusterView) -> str:
    """Return the waiting trials in order, each with its reason."""
    if not view.num_waiting:
        return "<div>No trial waits for slots.</div>"
    parts = []
    for pool in view.pools:
        if not pool.num_waiting:
            continue
        entries = [entry for entry in view.queue if entry.pool == pool.name]
        items = "".join(_item(first, last, view.at) for first, last in folded(entries))
        more = pool.num_waiting - len(entries)
        rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
        parts.append(f"<p><b>{escape(pool_line(pool))}</b></p><ol>{items}</ol>{rest}")
    return f"<div>{''.join(parts)}</div>"


def _item(first: QueueEntry, last: QueueEntry, at: float) -> str:
    place = f'<li value="{first.position + 1}">'
    if first is not last:
        return f"{place}{escape(followers_title(first, last))}</li>"
    return (
        f"{place}{escape(entry_title(first, at))}<br><i>{escape(first.reason.sentence)}</i></li>"
    )


def tables_page(listings: Sequence[Listing], most: int) -> str:
    """Return tables one below the other; of many rows only the front."""
    return f"<div>{''.join(_table(listing, most) for listing in listings)}</div>"


def _table(listing: Listing, most: int) -> str:
    title = f"<p><b>{escape(listing.title)}</b></p>" if listing.title else ""
    if not listing.rows:
        return f"{title}<p>{escape(listing.if_empty)}</p>"
    table = html_table(listing.header, map(listing.texts, listing.rows[:most]))
    more = len(listing.rows) - most
    rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return f"{title}{table}{rest}"
