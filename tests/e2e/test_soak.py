"""The soak's judge finds each damage, and a short soak finds nothing."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import DetHome, det_home
from tests.soak.damages import ELEVEN, MORE, copy_of, judge
from tests.soak.faults import ROLES, SIGNALS, Fault, draw
from tests.soak.soak import SIMULATED, Soak

pytestmark = pytest.mark.e2e

DAMAGES = ELEVEN | MORE
FAULTS = [  # none that makes torch be imported again, which takes longest
    Fault("rank", "SIGSTOP"),
    Fault("feeder", "SIGKILL"),
    Fault("master", "SIGKILL"),
    Fault("loader", "SIGKILL"),
    Fault("client", "SIGTERM"),
    Fault("rank", "SIGTERM"),
    Fault("server", "SIGKILL"),
    Fault("master", "SIGTERM"),
    Fault("rank", "SIGKILL"),
]


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


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found(soak: Soak, home: DetHome, tmp_path: Path, name: str) -> None:
    (damage, sentence), expected = DAMAGES[name], soak.expected["class"]
    with copy_of(home.path, tmp_path / "copy", expected.id) as copy:
        damage(copy)
        told = judge(copy, expected)
    assert any(sentence in line for line in told), told


@pytest.mark.timeout(300)
def test_a_short_soak_with_faults_in_a_fixed_order_finds_nothing(soak: Soak) -> None:
    left = FAULTS
    while left:  # on a busy computer an experiment may be over before all of them
        soak.run_round(left, ["class"], pause_s=0.15)
        left = [fault for fault in FAULTS if fault not in soak.report.faults]
    report = soak.finish()
    assert report.problems == []
    assert set(report.faults) == set(FAULTS)


def test_faults_are_drawn_from_the_seed_and_some_freezes_are_long() -> None:
    both = [[draw(rng) for _ in range(400)] for rng in (random.Random(7), random.Random(7))]
    assert both[0] == both[1]
    assert {fault.role for fault in both[0]} == set(ROLES)
    assert {fault.signal for fault in both[0]} == set(SIGNALS)
    assert 20 < max(fault.frozen_s for fault in both[0] if fault.signal == "SIGSTOP") <= 30
