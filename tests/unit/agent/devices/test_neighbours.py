"""Agents of one computer and their claims, in a real folder; other users are other processes."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.agent.devices import neighbours as module
from det_jupyter.agent.devices import shared_folder as module_of_folder
from det_jupyter.agent.devices.neighbours import Claims, Neighbours, open_shared, with_claims
from det_jupyter.agent.devices.offered_slots import Offer, cpu_places
from det_jupyter.agent.devices.shared_folder import Neighbour, Published, SharedFolder
from det_jupyter.contract.messages import DeviceProcess, SlotView
from det_jupyter.errors import DetError

SLOTS = cpu_places(4)
NOBODY, DAEMON = 65534, 1


class Clock:
    """UTC seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class AgentOf:
    """An agent of this process with claims, and what it has reported."""

    def __init__(self, folder: Path, clock: Callable[[], float] | None = None) -> None:
        self.claims: Claims = {}
        self.is_shared = False
        self.folder = SharedFolder(folder)
        self.neighbours = Neighbours(self.folder, SLOTS, self.note, clock or Clock())

    def note(self, claims: Claims, is_shared: bool) -> None:
        """Keep a report."""
        self.claims, self.is_shared = claims, is_shared

    def claim(self, run: str, *slots: int) -> bool:
        """Claim slots now."""
        return asyncio.run(self.neighbours.claim(run, slots))

    def seen(self) -> dict[int, str]:
        """Look, and return the claims of others by slot."""
        self.neighbours.look()
        return {slot: claim.claim for slot, claim in self.claims.items()}

    def want(self, *sizes: int) -> None:
        """Say which gangs wait."""
        self.neighbours.want(sizes, range(4))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared"


def test_slots_of_a_neighbour_are_reported_with_user_and_time_until_it_gives_them_back(
    shared: Path,
) -> None:
    first, second = AgentOf(shared), AgentOf(shared)
    assert second.is_shared
    assert first.claim("1.1.1", 0, 2)
    assert second.seen() == {0: "held", 2: "held"}
    assert second.claims[2].since == 1000.0
    assert not second.claim("1.1.1", 2, 3)
    assert second.claim("1.1.1", 3)
    assert first.seen() == {3: "held"}
    first.neighbours.release("1.1.1")
    assert second.seen() == {}
    assert second.claim("2.1.1", 0, 1, 2)


def test_slot_is_kept_for_the_neighbour_who_is_next_before_its_trial_starts(
    shared: Path,
) -> None:
    clock = Clock()
    first, second = AgentOf(shared, clock), AgentOf(shared, clock)
    assert first.claim("1.1.1", 0, 1, 2, 3)
    second.want(2, 1)
    clock.now += 60
    first.want(1, 1)
    first.neighbours.release("1.1.1")
    assert {slot: claim.claim for slot, claim in first.claims.items()} == {0: "next", 1: "next"}
    assert first.claims[0].since == 1000.0
    assert second.seen() == {2: "next", 3: "next"}


def test_master_that_does_not_start_on_what_is_kept_for_it_is_passed_over(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = AgentOf(shared), AgentOf(shared)
    second.want(4)
    assert first.seen() == dict.fromkeys(range(4), "next")
    monkeypatch.setattr(module, "_PATIENCE_S", -1.0)
    assert first.seen() == {}
    assert first.seen() == {}
    second.want(2)
    assert first.seen() == {0: "next", 1: "next"}


def test_time_of_an_agent_that_has_ended_counts_for_its_user_and_its_file_goes(
    shared: Path,
) -> None:
    clock = Clock()
    former = SharedFolder(shared)
    former.write(
        Published(pid=1, birth="of no process", used_s=100.0, at=1000.0, held={"cpu-0": 5.0})
    )
    other = AgentOf(shared, clock)
    assert other.seen() == {}
    files = list(shared.glob("*.json"))
    assert len(files) == 1
    assert Published.model_validate_json(files[0].read_bytes()).used_s == 100.0


def run_as(user: int, attempt: Callable[..., None], *words: Any) -> Any:
    """Start a process of another user (of this one, unless root) that sends a word."""
    context = get_context("fork")
    here, there = context.Pipe()

    def run() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        attempt(there, *words)

    process = context.Process(target=run)
    process.start()
    return process, here


def hold(pipe: Any, folder: Path) -> None:
    """Claim slots 0 and 1, say so, and stay."""
    agent = AgentOf(folder)
    pipe.send(agent.claim("1.1.1", 0, 1))
    signal.pause()


def race(pipe: Any, folder: Path, log: Path, rounds: int) -> None:
    """Claim each slot again and again; note in a file of the slot when two have it."""
    agent, won = AgentOf(folder), 0
    for number in range(rounds):
        slot = number % len(SLOTS)
        if agent.claim("1.1.1", slot):
            won += 1
            mark = log / str(slot)
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                (log / f"twice-{os.getpid()}").touch()
                continue
            mark.unlink()
            agent.neighbours.release("1.1.1")
    pipe.send(won)


@pytest.fixture
def open_folder(shared: Path) -> Path:
    """Return the folder, made by the first user, where every user can reach it."""
    for parent in (shared.parent, *shared.parents):
        if parent.name.startswith(("pytest-", "popen-")) or parent == shared.parent:
            parent.chmod(0o711)
    SharedFolder(shared)
    return shared


def test_kill_releases_the_slots_of_another_user(open_folder: Path) -> None:
    process, pipe = run_as(NOBODY, hold, open_folder)
    assert pipe.recv() is True
    agent = AgentOf(open_folder)
    assert agent.seen() == {0: "held", 1: "held"}
    if os.geteuid() == 0:
        assert agent.claims[0].user == "nobody"
    assert not agent.claim("1.1.1", 1, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert agent.seen() == {}
    assert agent.claim("1.1.1", 1, 2)


def test_two_users_that_race_never_have_a_slot_both(
    open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    log.chmod(0o777)
    monkeypatch.setattr(module, "_TRY_S", 0.0)
    both = [run_as(user, race, open_folder, log, 60) for user in (NOBODY, DAEMON)]
    won = [pipe.recv() for _, pipe in both]
    for process, _ in both:
        process.join()
    assert not list(log.glob("twice-*"))
    assert min(won) > 10


def test_neighbour_whose_process_is_hidden_holds_what_it_has_locked(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = AgentOf(shared), AgentOf(shared)
    assert first.claim("1.1.1", 0)
    monkeypatch.setattr(Neighbour, "is_alive", property(lambda self: False))
    monkeypatch.setattr(module_of_folder, "_is_hidden", lambda pid: True)
    first.want(4)
    assert second.seen() == {0: "held", 1: "next", 2: "next", 3: "next"}
    for locks in first.neighbours._locks.values():
        os.close(locks["cpu-0"])
    assert second.seen()[0] == "next"


def test_locked_slot_of_an_agent_that_says_nothing_is_taken_until_it_is_unlocked(
    shared: Path,
) -> None:
    silent, agent = SharedFolder(shared), AgentOf(shared)
    locks = silent.lock(["cpu-1"])
    assert locks is not None
    assert agent.seen() == {}
    assert not agent.claim("1.1.1", 0, 1)
    assert agent.seen() == {1: "held"}
    assert agent.claims[1].user == ""
    os.close(locks["cpu-1"])
    assert agent.seen() == {}


def test_folder_that_is_removed_is_made_again_with_the_locks_of_what_is_held(
    shared: Path,
) -> None:
    first = AgentOf(shared)
    assert first.claim("1.1.1", 0)
    for file in shared.iterdir():
        file.unlink()
    shared.rmdir()
    second = AgentOf(shared)
    first.seen()
    assert second.seen() == {0: "held"}
    assert SharedFolder(shared).lock(["cpu-0"]) is None


def test_slot_whose_lock_is_deleted_while_it_is_held_is_not_taken_by_another(
    shared: Path,
) -> None:
    first, second = AgentOf(shared), AgentOf(shared)
    assert first.claim("1.1.1", 0, 1)
    for file in shared.iterdir():
        file.unlink()
    first.seen()
    assert not second.claim("1.1.1", 0)
    assert second.seen() == {0: "held", 1: "held"}
    first.neighbours.release("1.1.1")
    assert second.claim("1.1.1", 0, 1)


@pytest.mark.parametrize("is_folder", [False, True])
def test_nothing_is_taken_before_others_have_locked_anew_what_was_deleted(
    shared: Path, monkeypatch: pytest.MonkeyPatch, is_folder: bool
) -> None:
    first, second = AgentOf(shared), AgentOf(shared)
    assert first.claim("1.1.1", 0)
    second.seen()
    for file in shared.iterdir():
        file.unlink()
    if is_folder:
        shared.rmdir()

    async def others_look(seconds: float) -> None:
        first.neighbours.look()

    monkeypatch.setattr(asyncio, "sleep", others_look)
    assert not second.claim("1.1.1", 0)
    assert second.seen() == {0: "held"}


def test_locks_that_are_one_file_are_not_given_out_and_do_not_start_a_trial_again_and_again(
    shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = AgentOf(shared)
    (shared / "cpu-0.lock").touch()
    (shared / "cpu-1.lock").hardlink_to(shared / "cpu-0.lock")
    (shared / "cpu-2.lock").mkdir()
    assert not agent.claim("1.1.1", 0, 1, 2)
    assert agent.claims.keys() == {0, 1, 2}
    agent.seen()
    assert len([each for each in caplog.records if "cannot be locked" in each.message]) == 3
    assert agent.claim("1.1.1", 3)


def test_folder_without_locks_says_so(
    shared: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(descriptor: int, how: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")  # NFS: the file is another user's

    agent = AgentOf(shared)
    monkeypatch.setattr(fcntl, "flock", fail)
    assert not agent.claim("1.1.1", 0)
    assert agent.seen() == {0: "held"}
    assert "Bad file descriptor; its slot is not given out" in caplog.text


def test_agents_that_look_at_a_lock_do_not_take_each_other_for_its_holder(shared: Path) -> None:
    agent = AgentOf(shared)
    (shared / "cpu-0.lock").touch()
    with (shared / "cpu-0.lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not agent.folder.is_locked("cpu-0")


def test_no_locks_are_made_for_slots_that_are_not_here(shared: Path) -> None:
    agent = AgentOf(shared)
    ended = Published(pid=0, birth="", at=1.0, held={"made-up": 1.0, "cpu-0": 1.0})
    SharedFolder(shared).write(ended)
    assert agent.seen() == {}
    assert not (shared / "made-up.lock").exists()


def test_user_with_many_files_does_not_hide_those_of_others(shared: Path) -> None:
    first, second = AgentOf(shared), AgentOf(shared)
    assert first.claim("1.1.1", 0)
    for number in range(300):
        (shared / f"00-{number:016x}.json").touch()
    assert second.seen() == {0: "held"}
    for _ in range(20):
        SharedFolder(shared).write(Published(pid=0, birth="", at=1.0))
    assert len(first.folder.neighbours()) == 16


def test_time_that_has_not_come_yet_does_not_make_that_of_others_nothing(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter("0123")
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(names) * 16)
    shared.mkdir()
    former, last = SharedFolder(shared), SharedFolder(shared)
    former.write(Published(pid=0, birth="", used_s=1e6, at=1000.0))
    first, second = AgentOf(shared), AgentOf(shared)
    own = first.neighbours._said
    last.write(
        Published(pid=own.pid, birth=own.birth, at=9e9,
                  held=dict.fromkeys(("cpu-0", "cpu-1", "cpu-2"), 1.0))
    )  # fmt: skip
    first.want(1)
    second.want(1)
    assert first.seen()[3] == "next"
    assert 3 not in second.seen()


def test_what_stays_wrong_is_logged_once(
    shared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent, wrong = AgentOf(shared), shared / f"{os.geteuid()}-{'a' * 16}.json"
    for number in range(3):
        wrong.write_text("no JSON" * number)
        agent.seen()
    shared.rename(tmp_path / "moved")
    shared.symlink_to(tmp_path / "moved" / "..")
    agent.seen()
    agent.seen()
    assert [each.levelname for each in caplog.records] == ["WARNING", "ERROR"]


def test_files_that_are_not_of_their_users_agents_are_ignored(
    shared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent, uid = AgentOf(shared), os.geteuid()
    said = Published(
        pid=os.getpid(), birth=agent.neighbours._said.birth, at=1.0, held={"cpu-0": 1.0}
    ).model_dump_json()
    (tmp_path / "elsewhere").write_text(said)
    (shared / f"{uid}-{'a' * 16}.json").symlink_to(tmp_path / "elsewhere")
    (shared / f"{uid + 1}-{'b' * 16}.json").write_text(said)
    os.mkfifo(shared / f"{uid}-{'c' * 16}.json")
    (shared / f"{uid}-{'d' * 16}.json").write_text(said.replace("1.0", "-1.0"))
    (shared / f"{uid}-{'e' * 16}.json").write_text(said + " " * 200_000)
    (shared / f"{uid}-{'f' * 16}.json").mkdir()
    assert agent.seen() == {}
    agent.seen()
    assert len([each for each in caplog.records if "ignored" in each.getMessage()]) == 2


@pytest.mark.parametrize("prepare", ["link", "file", "no sticky bit", "relative", "no such user"])
def test_folder_in_which_others_could_replace_files_is_refused(
    shared: Path, tmp_path: Path, prepare: str
) -> None:
    match prepare:
        case "link":
            shared.symlink_to(tmp_path)
        case "file":
            shared.touch()
        case "relative":
            shared = Path("shared")
        case "no such user":
            shared = Path("~no-such-user/shared")
        case _:
            shared.mkdir()
            shared.chmod(0o777)
    with pytest.raises(DetError, match=r"the folder of the slots that users share: .*install -d"):
        SharedFolder(shared)
    offer = Offer(agent_id="box", slots=SLOTS)
    given = {"DET_JUPYTER_SHARED_FOLDER": str(shared)}
    found, _, problem = open_shared([offer], given)
    assert found is None
    assert problem.startswith("slots are not shared with other users: ")


def test_cpu_places_are_shared_only_if_the_folder_is_named(shared: Path) -> None:
    offer = Offer(agent_id="box", slots=SLOTS)
    assert open_shared([offer], {}) == (None, [], "")
    assert open_shared([offer], {"DET_JUPYTER_SHARED_FOLDER": "none"}) == (None, [], "")
    given = {"DET_JUPYTER_SHARED_FOLDER": str(shared)}
    assert open_shared([offer, offer], given) == (None, [], "")
    folder, slots, problem = open_shared([offer], given)
    assert folder is not None
    assert (slots, problem) == (SLOTS, "")


def test_ranks_of_a_claim_are_no_strangers() -> None:
    rank = DeviceProcess(pid=7, command="python", user="ann", memory_bytes=5)
    other = DeviceProcess(pid=8, command="python", user="ben", memory_bytes=6)
    claim = DeviceProcess(pid=9, command="", user="ann", claim="held", since=1.0)
    merged = with_claims({0: [rank, other], 1: [rank]}, {0: claim})
    assert merged == {0: [claim.model_copy(update={"memory_bytes": 5}), other], 1: [rank]}


def test_gpus_have_the_same_name_for_all_agents() -> None:
    gpu = SlotView(id=0, kind="cuda", index=3, name="H200", uuid="GPU-5f_3")
    assert module.slot_key(gpu) == "GPU-5f-3"
