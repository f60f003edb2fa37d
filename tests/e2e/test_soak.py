"""The soak's judge finds each damage, and a short soak finds nothing."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.master.service.storing.database import open_database
from tests.processes import DetHome, det_home, wait_until
from tests.soak.collected import Interval, Saved, StoredExperiment, StoredTrial
from tests.soak.damages import ELEVEN, MORE, Copy, copy_of, judge, pack
from tests.soak.faults import CELLS, Fault, Faults, Target, draw
from tests.soak.judge import differences
from tests.soak.restored import wrong_sightings
from tests.soak.shown import FILE, look
from tests.soak.soak import SIMULATED, Soak
from tests.soak.tables import TABLES
from tests.soak.walk import changed_shown, changes

pytestmark = pytest.mark.e2e

DAMAGES = ELEVEN | MORE
# None that makes torch be imported again, which takes longest; first those that ranks survive.
FAULTS = [
    Fault("rank", "SIGSTOP"),
    Fault("client", "SIGTERM"),
    Fault("reader", "SIGKILL"),
    Fault("server", "SIGKILL"),
    Fault("master", "SIGTERM"),
    Fault("loader", "SIGKILL"),
    Fault("rank", "SIGTERM"),
    Fault("master", "SIGKILL"),
    Fault("rank", "SIGKILL"),
]


def trial(**changes: Any) -> StoredTrial:
    """Return a trial that was trained for four batches by one rank, in one run."""
    undisturbed = {
        "shown": {"state": "COMPLETED", "hparams": {"pause_s": 0.0}, "progress": (4, 1.0)},
        "batches": [(step, {"loss": 1 / step}) for step in range(1, 5)],
        "averages": [(4, ("training", {"loss": 0.5}))],
        "validations": [(2, 0.5), (4, 0.25)],
        "timed": [],
        "lines": {(1, 0): printed(1, 4)},
        "intervals": {0: [Interval(run=1, first=1, num=4, samples=8)]},
        "cuts": [(0, 0)],
        "saved": [],
    }
    return StoredTrial(**undisturbed | changes)


def printed(first: int, last: int) -> list[str]:
    return [f"batch {step}: loss {step}" for step in range(first, last + 1)]


def experiment(**changes: Any) -> StoredExperiment:
    return StoredExperiment(id=1, state="COMPLETED", message="", trials={0: trial(**changes)})


# Of a trial that was killed in batch 4, and continued from a checkpoint of batch 2, whose
# validation was due then.
CONTINUED: dict[str, Any] = {
    "cuts": [(0, 0), (1, 2)],
    "validations": [(2, 0.5), (2, 0.5), (4, 0.25)],
    "lines": {(1, 0): [*printed(1, 3), "killed"], (2, 0): printed(3, 4)},
    "intervals": {
        0: [
            Interval(run=1, first=1, num=2, samples=4),
            Interval(run=1, first=3, num=1, samples=2),  # is trained again
            Interval(run=2, first=3, num=2, samples=4),
        ]
    },
    "shown": {"state": "COMPLETED", "hparams": {"pause_s": 0.1}, "progress": (4, 1 - 1e-16)},
}


def test_a_trial_that_was_continued_is_as_one_that_was_not() -> None:
    assert differences(experiment(**CONTINUED), experiment()) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"validations": [(2, 0.5), (4, 0.25), (4, 0.25)]}, "validations: doubled: 4"),
        ({"validations": [(2, 0.5), (2, 0.4), (4, 0.25)]}, "validations: doubled: 2"),
        (
            {"lines": {(1, 0): printed(1, 2), (2, 0): printed(4, 4)}},
            "begins at batch 4, and 2 was",
        ),
        ({"lines": {(1, 0): printed(1, 3)}}, "the last is of batch 3, and 4 were trained"),
        (
            {"lines": {(1, 0): [*printed(1, 4), "batch 4: loss 5"]}},
            "lines of rank 0: changed at 4",
        ),
        ({"cuts": [(0, 0), (1, 0)]}, "a gap at 1, 2"),
        ({"cuts": [(0, 0), (1, 3)]}, "in the timings of rank 0: doubled: 3"),
        ({"batches": [(step, {"loss": 1 / step}) for step in (1, 2, 4)]}, "a gap at 3"),
        ({"shown": {"state": "CANCELED", "hparams": {}, "progress": None}}, "state is 'CANCELED'"),
    ],
)
def test_what_a_continued_trial_may_not_have(changes: dict[str, Any], told: str) -> None:
    found = differences(experiment(**CONTINUED | changes), experiment())
    assert any(told in line for line in found), found


@pytest.mark.parametrize("num_recoveries", [0, 1])
def test_a_trial_that_has_recovered_may_lack_what_a_killed_rank_had_not_written(
    num_recoveries: int,
) -> None:
    saved = Saved(uuid="1", steps_completed=3, state="DELETED", is_on_disk=False, values={})
    found = experiment(
        num_recoveries=num_recoveries,
        saved=[saved],
        batches=[(1, {"loss": 1.0}), (2, {"loss": 0.5}), (3, {"loss": 0.4}), (4, {"loss": 0.25})],
        averages=[(4, ("training", {"loss": 0.6}))],
        validations=[(2, 0.5), (4, 0.3)],
        timed=[(1, 8), (4, 8)],
    )
    told = differences(found, experiment(timed=[(step, 8) for step in range(1, 5)]))
    partial = [
        "trial 0: metrics of batches: changed at 3",
        "trial 0: averages: changed at 4",
        "trial 0: timed batches: lost: 2, 3",
        "trial 0: timed batches: a gap at 2, 3",
    ]
    assert sorted(told) == sorted(
        ["trial 0: validations: changed at 4", *(partial if not num_recoveries else [])]
    )


@pytest.mark.parametrize(
    ("by", "told"), [(1e-12, []), (1e-6, ["trial 0: validations: changed at 2"])]
)
def test_an_elastic_trial_differs_by_rounding_at_most(by: float, told: list[str]) -> None:
    found = experiment(is_elastic=True, validations=[(2, 0.5 + by), (4, 0.25)])
    assert differences(found, experiment(is_elastic=True)) == told


class PlayedRank:
    """A process whose output is that of a rank of experiment 7."""

    def __init__(self, output: Path) -> None:
        self.faults = Faults(output.parent, {}, random.Random(1))
        self.target: Target | None = None
        self._output = output
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, *batches: int) -> None:
        """Begin a run that has begun these batches."""
        self._output.write_text("".join(f"batch {each}: loss 1\n" for each in batches))
        with self._output.open() as opened:
            process = subprocess.Popen(["sleep", "60"], stdout=opened.fileno())
        self._processes.append(process)
        self.target = Target("rank", "class", psutil.Process(process.pid))

    def is_hit(self, trained: int = 0) -> bool:
        """Kill it if it may be hit."""
        fault = Fault("rank", "SIGKILL", kind="class", trained=trained)
        is_hit = self.faults.inject(fault) is not None
        assert not is_hit or self._processes[-1].wait() == -signal.SIGKILL
        return is_hit

    def end(self) -> None:
        """End what was not hit."""
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedRank]:
    output = tmp_path / "runs" / "7.1" / "output-0"
    output.parent.mkdir(parents=True)
    played = PlayedRank(output)
    monkeypatch.setattr(played.faults, "targets", lambda: [played.target])
    yield played
    played.end()


def test_a_rank_that_has_not_trained_enough_is_not_hit(rank: PlayedRank) -> None:
    rank.begin(1, 2)
    assert not rank.is_hit(trained=3)
    assert rank.is_hit(trained=2)


@pytest.mark.parametrize(
    ("runs", "is_third_hit"),
    [
        ([[41, 42], [42], [42]], False),
        ([[41, 42], [42], [41]], False),  # it may be in batch 42 already
        ([[41, 42], [42], [42, 43]], False),
        ([[41, 42], [42], [42, 43, 44]], True),
        ([[41, 42], [42], []], False),  # it may start in batch 42
        ([[], [], [41, 42]], False),
        ([[], [], [41, 42, 43]], True),
        ([[41], [43], [43]], True),
    ],
)
def test_a_rank_is_not_hit_three_times_in_the_same_batch_which_ends_a_trial(
    rank: PlayedRank, runs: list[list[int]], is_third_hit: bool
) -> None:
    hits = []
    for batches in runs:
        rank.begin(*batches)
        hits.append(rank.is_hit())
    assert hits == [True, True, is_third_hit]


def database_of(copy: Copy) -> Path:
    return copy.home / "data" / "det.sqlite3"


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="s-"))  # sockets are below it: it has to be short
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> Iterator[DetHome]:
    variables = SIMULATED | {"TMPDIR": str(temporary)}
    with det_home(tmp_path_factory.mktemp("home"), variables) as running:
        yield running


@pytest.fixture(scope="module")
def soak(home: DetHome, temporary: Path) -> Soak:
    """Return a soak that has run its class in peace."""
    soak = Soak(home, temporary, seed=1)
    soak.run_undisturbed(["class"])
    return soak


def test_what_is_not_damaged_is_found_to_be_right(
    soak: Soak, home: DetHome, tmp_path: Path
) -> None:
    expected = soak.expected["class"]
    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        assert judge(copy, expected) == []
    trial = expected.trials[0]
    assert [step for step, _ in trial.batches] == list(range(1, 61))
    assert [step for step, _ in trial.timed] == list(range(1, 61))
    assert [one.steps_completed for one in trial.kept()] == [20, 40, 60]
    assert sorted(trial.lines) == [(1, 0), (1, 1)]
    assert sorted(trial.intervals) == [0, 1]


def test_packed_times_are_read_as_well(soak: Soak, home: DetHome, tmp_path: Path) -> None:
    expected = soak.expected["class"]
    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        pack(copy)
        with closing(sqlite3.connect(database_of(copy))) as db:
            assert db.execute("SELECT count(*) FROM series_rows").fetchone() == (0,)
        assert judge(copy, expected) == []


def test_a_trial_may_have_runs_without_progress(soak: Soak, home: DetHome, tmp_path: Path) -> None:
    expected = soak.expected["class"]
    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        copy.execute("DELETE FROM progress")
        assert not any("series_runs" in line for line in judge(copy, expected))


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "INSERT INTO feed (at, kind, experiment_id, json) "
            "SELECT max(at), 'experiment', 99, '{}' FROM feed",
            "feed has an unknown experiment 99",
        ),
        ("INSERT INTO progress VALUES (99, 1, 0.5)", "progress has an unknown trial 99"),
    ],
)
def test_nothing_stays_of_a_deleted_experiment(
    soak: Soak, home: DetHome, tmp_path: Path, statement: str, told: str
) -> None:
    expected = soak.expected["class"]
    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        copy.execute(statement)
        assert told in judge(copy, expected)


def test_what_a_master_has_shown_is_held_against_the_events_up_to_then(
    soak: Soak, home: DetHome
) -> None:
    client, data = home.client(), home.path / "data"
    sighting = wait_until(
        lambda: look(client, data, soak.expected["class"].id), "no event is stored meanwhile"
    )
    client.session.close()
    assert list(wrong_sightings(data, [sighting])) == []
    earlier = replace(sighting, seq=sighting.seq - 1)
    state = "experiment 1: the master shows state COMPLETED, and ACTIVE by the events up to "
    assert any(line.startswith(state) for line in wrong_sightings(data, [earlier]))
    later = replace(sighting, seq=sighting.seq + 1)
    lost = f"the master shows event {later.seq}, which is lost"
    assert list(wrong_sightings(data, [later])) == [lost]


def test_each_column_is_judged_or_says_why_it_is_not(tmp_path: Path) -> None:
    query = "SELECT name FROM pragma_table_info(?)"
    with closing(open_database(tmp_path / "det.sqlite3")) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        there = {name: {each for (each,) in db.execute(query, (name,))} for (name,) in tables}
    assert {table: set(columns) for table, columns in TABLES.items()} == there


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found(soak: Soak, home: DetHome, tmp_path: Path, name: str) -> None:
    (damage, sentence), expected = DAMAGES[name], soak.expected["class"]
    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        damage(copy)
        told = judge(copy, expected)
    assert any(sentence in line for line in told), told


@pytest.mark.long
def test_each_value_that_is_judged_is_found_if_it_is_another(
    soak: Soak, home: DetHome, tmp_path: Path
) -> None:
    expected, unseen = soak.expected["class"], []

    def is_found(copy: Copy) -> bool:
        try:
            return bool(judge(copy, expected))
        except (ValueError, LookupError):  # it cannot be read: the soak ends
            return True

    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        for change in changes(database_of(copy)):
            change.make(database_of(copy))
            unseen += [change.what] * (not is_found(copy))
            change.make(database_of(copy), back=True)
        assert judge(copy, expected) == []
        kept = copy.home / FILE
        before = kept.read_text()
        for what, text in changed_shown(kept, expected.id):
            kept.write_text(text)
            unseen += [what] * (not is_found(copy))
            kept.write_text(before)
    assert unseen == []


@pytest.mark.long
def test_a_short_soak_with_faults_in_a_fixed_order_finds_nothing(soak: Soak) -> None:
    left = FAULTS
    while left:  # on a busy computer an experiment may be over before all of them
        soak.run_round(left, ["class"], pause_s=0.15, patience_s=60)
        left = [fault for fault in FAULTS if fault not in soak.report.faults]
    report = soak.finish()
    assert report.problems == []
    assert set(report.faults) == set(FAULTS)
    assert report.sightings > 0


def test_faults_are_drawn_from_the_seed_and_some_freezes_are_long() -> None:
    both = [
        [draw(rng, Counter()) for _ in range(2000)] for rng in (random.Random(7), random.Random(7))
    ]
    assert both[0] == both[1]
    assert {(fault.role, fault.kind, fault.signal) for fault in both[0]} == set(CELLS)
    assert 20 < max(fault.frozen_s for fault in both[0] if fault.signal == "SIGSTOP") <= 30


def test_what_was_not_hit_yet_is_likelier_to_be_drawn() -> None:
    rng, hits = random.Random(7), Counter(CELLS)
    rare = ("script", "command", "SIGTERM")

    def num_rare() -> int:
        drawn = [draw(rng, hits) for _ in range(2000)]
        return sum((each.role, each.kind, each.signal) == rare for each in drawn)

    often = num_rare()
    del hits[rare]
    assert num_rare() > 2 * often > 0
