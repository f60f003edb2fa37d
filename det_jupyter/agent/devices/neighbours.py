"""The slots of an agent that agents of other users hold, or are next to get (shared_folder.py).

    claim      before a gang starts: locks its slots, or returns that another agent was faster
    release    when it has ended: before the master gets the report, it knows who is next
    want       the master's waiting gangs, which others can see
    look       reads what the others have written, and reports the slots that are not given out

A master that does not start a gang on the slots that are kept for it (it hangs, or its user has
changed the queue) is passed over after 10 s, until it writes something else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.devices.shared_folder import (
    DEFAULT,
    MOST_SLOTS,
    MOST_WANTS,
    NONE,
    SHARED_FOLDER_VARIABLE,
    Neighbour,
    Published,
    SharedFolder,
    user_name,
)
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import DeviceProcess, SlotView
from det_jupyter.errors import DetError
from det_jupyter.scheduler.sharing import Party, decayed, next_slots

logger = logging.getLogger(__name__)

_POLL_S = 0.2  # while there are neighbours
_ALONE_S = 1.0
_WRITE_S = 10.0  # how often the time of held slots is written while there are neighbours
_PATIENCE_S = 10.0
_SETTLE_S = 2 * _ALONE_S  # until all have locked anew what they hold, in a folder that is new
_TRIES, _TRY_S = 5, 0.02  # another agent may lock a slot for a moment, to find out whether it can

Claims: TypeAlias = dict[int, DeviceProcess]  # by slot
# Gets the claims of others, and whether there are neighbours at all.
Report: TypeAlias = Callable[[Claims, bool], None]


def open_shared(
    offers: Sequence[Offer], environ: Mapping[str, str]
) -> tuple[SharedFolder | None, list[SlotView], str]:
    """Return the folder, which slots are shared there, and what is wrong with a folder named.

    Of several (simulated) agents of a process, none shares its slots.
    """
    given = environ.get(SHARED_FOLDER_VARIABLE, "")
    slots = [slot for slot in offers[0].slots if given or slot.kind == "cuda"][:MOST_SLOTS]
    if given == NONE or len(offers) > 1 or not slots:
        return None, [], ""
    try:
        return SharedFolder(Path(os.path.expanduser(given or DEFAULT))), slots, ""
    except DetError as error:
        logger.error("slots are not shared with other users: %s", error)
        return None, [], f"slots are not shared with other users: {error}" if given else ""


def slot_key(slot: SlotView) -> str:
    """Return the name of a slot that all agents of this computer give it.

    >>> slot_key(SlotView(id=3, kind="cpu", index=3, name="CPU"))
    'cpu-3'
    """
    return re.sub("[^A-Za-z0-9-]", "-", slot.uuid or f"{slot.kind}-{slot.index}")[:64]


class Neighbours:
    """The claims of this agent, and of others on its slots.

    Args:
        folder: The folder.
        slots: The slots of this agent that others may have, too.
        report: Gets the claims of others when they change; called at once.
        clock: Returns UTC seconds.
    """

    def __init__(
        self,
        folder: SharedFolder,
        slots: Iterable[SlotView],
        report: Report,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._keys = {slot.id: slot_key(slot) for slot in slots}
        self._report = report
        self._clock = clock
        self._locks: dict[str, dict[str, int]] = {}  # by run, by slot
        self._held_by_others: dict[str, Neighbour] = {}
        self._locked_by_others: set[str] = set()  # by an agent that has written nothing about it
        self._could_start: dict[str, tuple[object, float]] = {}  # by party: what, since when
        self._living: dict[str, Neighbour] = {}  # by file
        self._settled_at = 0.0  # of time.monotonic: no slot is taken before
        self._reported: tuple[Claims, bool] | None = None
        identity = ProcessIdentity.of(os.getpid())
        former = [(each.used_s, each.at) for each in folder.take_over()]
        now = clock()
        self._said = Published(
            pid=identity.pid,
            birth=identity.birth,
            used_s=sum(decayed(used_s, at, now) for used_s, at in former),
            at=now,
        )
        self._write()
        self.look()

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            is_shared = self._reported is not None and self._reported[1]
            await asyncio.sleep(_POLL_S if is_shared else _ALONE_S)
            if is_shared and self._said.held and abs(self._clock() - self._said.at) > _WRITE_S:
                self._write()
            self.look()

    async def claim(self, run_id: str, slots: Iterable[int]) -> bool:
        """Take slots for a run; return False if another agent has one of them."""
        keys = [self._keys[slot] for slot in slots if slot in self._keys]
        if not keys:
            return True
        for _ in range(_TRIES):
            self.look()
            if (wait_s := self._settled_at - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
                self.look()
            if any(key in self._held_by_others for key in keys):
                return False
            if (locks := self._folder.lock(keys)) is not None:
                self._locks[run_id] = locks
                self._write(held={**self._said.held, **dict.fromkeys(keys, self._clock())})
                return True
            await asyncio.sleep(_TRY_S)
        self._locked_by_others.update(filter(self._folder.is_locked, keys))
        self.look()
        return False

    def release(self, run_id: str) -> None:
        """Give back the slots of a run that has ended, if it had any."""
        locks = self._locks.pop(run_id, {})
        if not locks:
            return
        try:
            self._write(held={key: at for key, at in self._said.held.items() if key not in locks})
        finally:
            _unlock(locks)
        self.look()

    def want(self, sizes: Sequence[int], slots: Iterable[int]) -> None:
        """Write which gangs wait for slots that others have.

        Args:
            sizes: Number of slots of each, the first one first; 128 of them count.
            slots: The slots that they may take.
        """
        waits_since = (self._said.waits_since or self._clock()) if sizes else None
        keys = tuple(self._keys[slot] for slot in slots if slot in self._keys)
        self._write(wants=tuple(sizes[:MOST_WANTS]), slots=keys, waits_since=waits_since)
        self.look()

    def look(self) -> None:
        """Read what the others have written, and report their claims if these have changed."""
        try:
            if self._folder.renew() | self._lock_anew():
                self._write()
            found = self._folder.neighbours()
        except OSError as error:
            logger.warning("the slots of other users are not known now: %s", error)
            return
        vanished = self._living.keys() - {each.name for each in found}
        if any(self._living[name].is_alive for name in vanished):  # somebody has deleted its file
            self._settled_at = time.monotonic() + _SETTLE_S
        self._living = living = {each.name: each for each in found if each.may_be_alive}
        self._held_by_others = self._holders(found)
        self._locked_by_others = {
            key
            for key in self._locked_by_others
            if key not in self._held_by_others and self._folder.is_locked(key)
        }
        assigned = self._assigned(
            [
                self._party(each, self._held_by(each), is_alive=each.name in living)
                for each in found
            ]
        )
        claims: Claims = {}
        for slot, key in self._keys.items():
            who = living.get(assigned.get(key, ""))
            if (holder := self._held_by_others.get(key)) is not None:
                claims[slot] = _claim(holder, "held", holder.said.held[key])
            elif key in self._locked_by_others:
                claims[slot] = DeviceProcess(pid=0, command="another user's trial", claim="held")
            elif who is not None and key not in self._held:
                claims[slot] = _claim(who, "next", who.said.waits_since)
        if self._reported != (claims, bool(living)):
            self._reported = claims, bool(living)
            self._report(claims, bool(living))

    def _lock_anew(self) -> bool:
        """Lock what this agent holds and whose file was deleted; return whether some was."""
        was_deleted = False
        for locks in self._locks.values():
            for key, descriptor in locks.items():
                if self._folder.has_lock(key, descriptor):
                    continue
                if anew := self._folder.lock([key]):
                    locks |= anew
                    os.close(descriptor)
                    was_deleted = True
        return was_deleted

    def _holders(self, found: Iterable[Neighbour]) -> dict[str, Neighbour]:
        """Return who holds each slot: an agent that runs, or is hidden and has the lock."""
        holders: dict[str, Neighbour] = {}
        own = set(self._keys.values())  # no file is made for another name in somebody's file
        for each in sorted(found, key=lambda one: one.said.at, reverse=True):
            is_alive = each.is_alive
            for key in each.said.held.keys() - self._held.keys():
                if is_alive or (key in own and key not in holders and self._folder.is_locked(key)):
                    holders[key] = each
        return holders

    def _party(self, agent: Neighbour, held: Iterable[str], *, is_alive: bool = True) -> Party:
        said = agent.said
        return Party(
            id=agent.name,
            user=agent.uid,
            used_s=said.used_s,
            at=min(said.at, self._clock()),  # a later one would halve the time of all others
            held=frozenset(held),
            slots=said.slots if is_alive else (),
            wants=said.wants if is_alive else (),
        )

    def _held_by(self, agent: Neighbour) -> list[str]:
        return [key for key, who in self._held_by_others.items() if who is agent]

    @property
    def _held(self) -> Mapping[str, float]:
        return self._said.held

    def _assigned(self, others: Sequence[Party]) -> dict[str, str]:
        """Return who gets each free slot, leaving out masters that do not take them."""
        now = time.monotonic()
        passed = {
            party.id
            for party in others
            if party.id in self._could_start
            and self._could_start[party.id][0] == (party.held, party.wants)
            and now - self._could_start[party.id][1] > _PATIENCE_S
        }
        asking = [replace(one, wants=()) if one.id in passed else one for one in others]
        own = Neighbour(self._folder.name, os.geteuid(), self._said)
        assigned = next_slots([*asking, self._party(own, self._held)])
        num = Counter(assigned.values())
        before = self._could_start
        self._could_start = {}
        for party in others:
            if party.id in passed or (party.wants and num[party.id] >= party.wants[0]):
                what = party.held, party.wants
                known = before.get(party.id)
                since = known[1] if known is not None and known[0] == what else now
                self._could_start[party.id] = what, since
        return assigned

    def _write(self, **changes: object) -> None:
        """Write this agent's file, with its time so far and these changes."""
        now, said = self._clock(), self._said
        added_s = len(said.held) * max(0.0, now - said.at)
        used_s = decayed(said.used_s, said.at, now) + added_s
        self._said = said.model_copy(update={"used_s": used_s, "at": now, **changes})
        try:
            self._folder.write(self._said)
        except OSError as error:  # the locks keep slots from two masters nevertheless
            logger.warning("other users do not see which slots are taken here: %s", error)


def _unlock(locks: Mapping[str, int]) -> None:
    for descriptor in locks.values():
        os.close(descriptor)


def _claim(agent: Neighbour, claim: Literal["held", "next"], since: float | None) -> DeviceProcess:
    user = user_name(agent.uid)
    what = f"{user}'s trial" if claim == "held" else f"kept for {user}"
    return DeviceProcess(pid=agent.said.pid, command=what, user=user, claim=claim, since=since)


def with_claims(
    processes: Mapping[int, Sequence[DeviceProcess]], claims: Claims
) -> dict[int, list[DeviceProcess]]:
    """Return processes and claims by slot; the ranks of a claim are no processes of their own."""
    merged = {slot: list(found) for slot, found in processes.items()}
    for slot, claim in claims.items():
        found = merged.get(slot, [])
        ranks = [one for one in found if claim.claim == "held" and one.user in ("", claim.user)]
        memory = sum(one.memory_bytes for one in ranks)
        others = [one for one in found if one not in ranks]
        merged[slot] = [claim.model_copy(update={"memory_bytes": memory}), *others]
    return merged
