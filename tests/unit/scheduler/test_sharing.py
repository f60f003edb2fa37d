"""Who of a computer's users is next: fair by time, whole gangs, never two on a slot."""

from __future__ import annotations

import heapq
import random
import time
from itertools import count
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.scheduler.sharing import HALF_LIFE_S, Party, decayed, next_slots

SLOTS = tuple("abcdefgh")
PARTIES = st.lists(
    st.builds(
        Party,
        id=st.sampled_from("klmnopq"),
        user=st.integers(1, 3),
        used_s=st.floats(0, 1e6),
        at=st.floats(0, 1e6),
        held=st.frozensets(st.sampled_from(SLOTS), max_size=2),
        slots=st.permutations(SLOTS).map(tuple),
        wants=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    ),
    unique_by=lambda party: party.id,
    max_size=5,
)


def party(name: str, *wants: int, held: str = "", used_s: float = 0.0, user: int = 0) -> Party:
    """Return a party with a user of its own, unless one is given."""
    number = user or ord(name[0])
    return Party(
        id=name, user=number, used_s=used_s, held=frozenset(held), slots=SLOTS, wants=wants
    )


@given(parties=PARTIES, seed=st.integers())
def test_only_free_slots_are_assigned_and_every_reader_of_the_files_agrees(
    parties: list[Party], seed: int
) -> None:
    assigned = next_slots(parties)
    assert not set(assigned) & {slot for each in parties for slot in each.held}
    shuffled = random.Random(seed).sample(parties, len(parties))
    assert next_slots(shuffled) == assigned


def test_the_user_with_less_time_is_next_and_both_are_when_equal() -> None:
    full = party("x", held="abcdef")
    assert next_slots([full, party("k", 1, 1, used_s=9e5), party("l", 1, 1)]) == {
        "g": "l", "h": "l",
    }  # fmt: skip
    assert next_slots([full, party("k", 1, 1), party("l", 1, 1)]) == {"g": "k", "h": "l"}


def test_slots_are_kept_for_a_gang_that_does_not_fit_yet() -> None:
    busy = party("k", 1, held="abcdef", used_s=100.0)
    assert next_slots([busy, party("l", 4)]) == {"g": "l", "h": "l"}


def test_gang_that_never_fits_keeps_nothing() -> None:
    assert next_slots([party("k", 1, held="a"), party("l", 9, 2)]) == {
        "b": "l", "c": "l", "d": "k",
    }  # fmt: skip


def test_many_gangs_that_never_fit_cost_little_time() -> None:
    liars = [
        Party(id=f"l{number}", user=1, slots=("made up",), wants=(1024,) * 1024)
        for number in range(200)
    ]
    begun = time.process_time()
    assert next_slots([*liars, party("v", 1)])["a"] == "v"
    assert time.process_time() - begun < 1.0  # it was 3 s


def test_two_masters_of_a_user_count_as_one() -> None:
    others = [party("k", 1, held="abc", user=1), party("l", 1, user=1)]
    taken = party("x", held="efgh")
    assert next_slots([*others, taken, party("m", 1, held="d")]) == {}
    assert next_slots([*others, party("x", held="fgh"), party("m", 1, held="d")]) == {"e": "m"}


def test_time_counts_half_after_the_half_life() -> None:
    assert decayed(8.0, 10.0, 10.0 + 2 * HALF_LIFE_S) == 2.0
    old = party("k", 1, used_s=1000.0)
    new = Party(id="l", user=2, used_s=600.0, at=HALF_LIFE_S, slots=SLOTS, wants=(1,))
    assert next_slots([old, new, party("x", held="abcdefg")]) == {"h": "k"}


class Computer:
    """Eight slots and two users, whose trials arrive, take slots and end."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, float]] = {"k": {}, "l": {}}
        self.waiting: dict[str, list[tuple[float, int, float]]] = {"k": [], "l": []}
        self.used_s = dict.fromkeys("kl", 0.0)
        self.waits: dict[str, list[float]] = {"k": [], "l": []}
        self.now = 0.0

    def go_on(self, until: float) -> None:
        """Let time pass."""
        for user, held in self.held.items():
            used = decayed(self.used_s[user], self.now, until)
            self.used_s[user] = used + len(held) * (until - self.now)
        self.now = until

    def start(self) -> list[tuple[float, str, tuple[str, ...]]]:
        """Start what may start; return ends, users and slots."""
        started: list[tuple[float, str, tuple[str, ...]]] = []
        while True:
            assigned = next_slots(
                [
                    Party(id=user, user=ord(user), used_s=self.used_s[user], at=self.now,
                          held=frozenset(self.held[user]), slots=SLOTS,
                          wants=tuple(size for _, size, _ in self.waiting[user][:8]))
                    for user in "kl"
                ]
            )  # fmt: skip
            before = len(started)
            for user, queue in self.waiting.items():
                own = tuple(slot for slot, who in assigned.items() if who == user)
                if queue and len(own) >= queue[0][1]:
                    arrived, size, length_s = queue.pop(0)
                    assert not (self.held["k"].keys() | self.held["l"].keys()) & set(own[:size])
                    self.held[user].update(dict.fromkeys(own[:size], self.now))
                    self.waits[user].append(self.now - arrived)
                    started.append((self.now + length_s, user, own[:size]))
            if len(started) == before:
                return started


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 4)])
@pytest.mark.parametrize("seed", range(4))
def test_two_users_wait_equally_long_and_never_share_a_slot(
    seed: int, sizes: tuple[int, ...]
) -> None:
    draw, number, computer = random.Random(seed), count(), Computer()
    work = [(draw.choice(sizes), draw.uniform(10, 60)) for _ in range(100)]
    events: list[tuple[float, int, str, tuple[int, float] | None, tuple[str, ...]]] = [
        (draw.uniform(0, 60), next(number), user, each, ())
        for user in "kl"
        for each in draw.sample(work, len(work))
    ]
    heapq.heapify(events)
    while events:
        at, _, user, arriving, ending = heapq.heappop(events)
        computer.go_on(at)
        for slot in ending:
            del computer.held[user][slot]
        if arriving is not None:
            computer.waiting[user].append((at, *arriving))
        for end, whose, slots in computer.start():
            heapq.heappush(events, (end, next(number), whose, None, slots))
    first, second = (mean(computer.waits[user]) for user in "kl")
    assert [len(waits) for waits in computer.waits.values()] == [100, 100]
    assert abs(first - second) <= 0.2 * max(first, second)
