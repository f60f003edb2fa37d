"""The two runs of verify_resume, against a master that runs them in no time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.diagnosing.verify import Verification, verify
from det_jupyter.client.handles import experiment as module
from det_jupyter.contract.messages import (
    CheckpointView,
    CreateExperiment,
    Curve,
    ExperimentView,
    LogLine,
    LogPage,
    LogQuery,
    State,
)
from det_jupyter.errors import CheckpointError, ConfigError, Conflict, NotFound, RankFailed
from tests.unit.client.diagnosing.test_verify import experiment, plan_of, pool, pooled, trial
from tests.unit.view.view_samples import checkpoint, curve

STRAIGHT, INTERRUPTED = 1, 2
PLANNED = ["DET_JUPYTER_INTERRUPT: pause@100", "DET_JUPYTER_INTERRUPT: kill@200"]


def ran_on(*agents: str) -> list[str]:
    return [f"DET_JUPYTER_INTERRUPT: run {i + 1} on {agent}" for i, agent in enumerate(agents)]


class Master:
    """Runs what it is asked to in no time; its answers can be changed."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[CreateExperiment] = []
        self.there: set[int] = set()
        self.killed: list[int] = []
        self.lines = [*ran_on("here"), *PLANNED]
        self.failing: dict[int, BaseException] = {}
        self.values = {STRAIGHT: 0.5, INTERRUPTED: 0.5}
        self.notices: list[str] = []
        self.waited_s: list[float | None] = []
        self._folder = folder
        self.saved = {
            number: [self.saved_by(number, 150), self.saved_by(number, 300)]
            for number in (STRAIGHT, INTERRUPTED)
        }

    def saved_by(self, number: int, steps: int, **changes: Any) -> CheckpointView:
        folder = self._folder / f"{number}-{steps}"
        folder.mkdir(exist_ok=True)
        return checkpoint(steps, None, path=str(folder), **changes)

    def create(self, request: CreateExperiment) -> Any:
        self.requests.append(request)
        self.there.add(len(self.requests))
        return experiment().model_copy(update={"id": len(self.requests)})

    def experiment(self, number: int) -> ExperimentView:
        if number not in self.there:
            raise NotFound("it is gone")
        own = trial().model_copy(update={"notices": self.notices})
        return experiment().model_copy(update={"id": number, "trials": [own]})

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        lines = [
            LogLine(id=i, at=0.0, trial_id=trial_id, run=1, rank=0, text=text)
            for i, text in enumerate(["a line of the trial", *self.lines])
        ]
        return LogPage(lines=lines, total=len(lines), last_id=len(lines), is_over=True)

    def checkpoints(self, number: int) -> list[CheckpointView]:
        return self.saved[number]

    def curves(self, number: int) -> list[Curve]:
        return [curve("validation", "error", [self.values[number]])]

    def handle(self, number: int) -> Any:
        return Handle(self, number)


class Handle:
    """A handle on a run of the master."""

    def __init__(self, master: Master, number: int) -> None:
        self._master = master
        self.id = number

    @property
    def view(self) -> ExperimentView:
        return self._master.experiment(self.id)

    def wait(self, timeout: float | None = None, *, on_tick: Callable[[Any], None]) -> State:
        self._master.waited_s.append(timeout)
        on_tick(None)
        if error := self._master.failing.get(self.id):
            raise error
        return State.COMPLETED

    def kill(self) -> None:
        self._master.killed.append(self.id)

    def delete(self, *, ask: bool) -> None:
        assert not ask
        self._master.there.discard(self.id)


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return Master(tmp_path)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Have two checkpoints be equal, and return the folders that were compared."""
    return comparing(monkeypatch, {"tensors": 31, "differences": []})


def comparing(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | str) -> list[list[str]]:
    asked: list[list[str]] = []

    def run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append([Path(path).name for path in argv[4:6]])
        text = found if isinstance(found, str) else json.dumps(found)
        done = subprocess.CompletedProcess(argv, 1, text, "no module torch\n")
        if options.get("check"):
            done.check_returncode()
        return done

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def verified(
    master: Master, view: ExperimentView | None = None, *, keep: bool = False, **given: Any
) -> Verification:
    view = view or experiment(max_length={"batches": 300})
    return verify(
        cast(Client, master), view, plan_of(view, **given), master.handle, timeout_s=9.0, keep=keep
    )


@pytest.mark.parametrize("keep", [False, True])
def test_equal_runs_are_deleted_unless_they_are_to_be_kept(
    master: Master, compared: list[list[str]], keep: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verified(master, keep=keep)
    assert found
    assert (found.straight_id, found.interrupted_id) == (STRAIGHT, INTERRUPTED)
    assert (found.steps_completed, found.tensors, found.numbers) == (300, 31, 1)
    assert (found.agents, found.unsaved) == (("here",), ())
    assert [request.config["name"] for request in master.requests] == [
        "digits: straight", "digits: interrupted",
    ]  # fmt: skip
    assert compared == [["1-300", "2-300"]], "their last checkpoints"
    assert master.waited_s == [9.0, 9.0]
    assert master.there == ({1, 2} if keep else set())
    assert master.killed == []
    assert "\rstraight 100%, interrupted 100%" in capsys.readouterr().out


def test_runs_that_differ_are_kept_and_told_with_all_differences(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparing(
        monkeypatch, {"tensors": 31, "differences": [{"name": "models.0", "problem": "is other"}]}
    )
    master.values[INTERRUPTED] = 0.75
    unsaved = "`self.ema` changes and is in no checkpoint"
    master.notices = [unsaved, "another notice"]
    found = verified(master)
    assert not found
    assert found.differences == (
        ("models.0", "is other"),
        (
            "validation.error",
            "1 of 1 reported number differ; the first is at batch 1: 0.5 and 0.75",
        ),
    )
    assert found.unsaved == (unsaved,), "once, though both have it"
    assert master.there == {1, 2}


def test_the_last_checkpoint_is_the_one_that_is_kept_with_most_batches(
    master: Master, compared: list[list[str]]
) -> None:
    gone = master.saved_by(STRAIGHT, 400, state="DELETED")
    master.saved[STRAIGHT] = [master.saved_by(STRAIGHT, 300), gone, master.saved_by(STRAIGHT, 150)]
    assert verified(master).steps_completed == 300
    assert compared == [["1-300", "2-300"]]


@pytest.mark.parametrize(("keep", "there"), [(False, set()), (True, {1, 2})])
@pytest.mark.parametrize("kind", [RankFailed, KeyboardInterrupt])
def test_an_error_kills_both_and_deletes_what_is_not_to_be_kept(
    master: Master, kind: type[BaseException], keep: bool, there: set[int]
) -> None:
    error = RankFailed("it broke", run="experiment 2") if kind is RankFailed else kind()
    master.failing[INTERRUPTED] = error
    with pytest.raises(type(error)) as caught:
        verified(master, keep=keep)
    assert master.killed == [1, 2]
    assert master.there == there
    is_told = "(and is deleted; keep=True keeps it)" in str(caught.value)
    assert is_told is (kind is RankFailed and not keep)


@pytest.mark.parametrize("lines", [[], PLANNED[:1], PLANNED[::-1]])
def test_runs_that_were_not_interrupted_as_planned_prove_nothing(
    master: Master, lines: list[str]
) -> None:
    master.lines = lines
    got = lines or "nothing"
    with pytest.raises(Conflict) as caught:
        verified(master)
    assert str(caught.value) == (
        f"verify_resume: experiment 2 was not interrupted as planned: got {got}, "
        f"expected {PLANNED}"
    )


@pytest.mark.parametrize(
    ("agents", "problem"),
    [
        (("a", "b", "b"), ""),
        (("a", "a"), "experiment 2 was not on 2 machines: its runs were on a, a"),
        ((), "experiment 2 was not on 2 machines: its runs were on none"),
    ],
)
def test_runs_are_on_as_many_machines_as_was_asked_for(
    master: Master, compared: list[list[str]], agents: tuple[str, ...], problem: str
) -> None:
    master.lines = [*ran_on(*agents), *PLANNED]
    given: dict[str, Any] = {"machines": 2, "pools": [pool(2, 2)]}
    if problem:
        with pytest.raises(Conflict, match=problem):
            verified(master, pooled(2), **given)
    else:
        assert verified(master, pooled(2), **given).agents == agents


def test_a_run_without_a_checkpoint_cannot_be_compared(master: Master) -> None:
    master.saved[INTERRUPTED] = [master.saved_by(INTERRUPTED, 300, state="DELETED")]
    with pytest.raises(CheckpointError, match="verify_resume: experiment 2 left no checkpoint"):
        verified(master)


def test_a_comparison_that_fails_is_told_with_its_error(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparing(monkeypatch, "")
    with pytest.raises(
        CheckpointError, match=r"verify_resume: comparing failed: no module torch$"
    ):
        verified(master)


@pytest.mark.parametrize("steps", [0, 20, 21])
def test_an_interruption_is_between_the_first_batch_and_the_last(steps: int) -> None:
    view = experiment(max_length={"batches": 20})
    with pytest.raises(ConfigError, match=f"got pause_at {steps}, expected a batch from 1 to 19"):
        plan_of(view, pause_at=steps)
    assert plan_of(view, pause_at=1, kill_at=19).interruptions == (("pause", 1), ("kill", 19))
    with pytest.raises(ConfigError, match="pause_at and kill_at are the same batch; give two"):
        plan_of(view, pause_at=7, kill_at=7)


@pytest.mark.parametrize("machines", [1, 2])
def test_pools_are_asked_for_only_if_several_machines_are_wanted(
    machines: int, master: Master, compared: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Other(Master):
        def experiment(self, number: int) -> ExperimentView:
            found = pooled(2) if number == 7 else super().experiment(number)
            return found.model_copy(update={"trials": [trial()]})

        def pools(self) -> Any:
            asked.append(1)
            return [pool(2, 2)]

    def run(client: Any, view: Any, plan: Any, handle_of: Any, **how: Any) -> Any:
        return plan, how, type(handle_of(3))

    monkeypatch.setattr(module, "verify", run)
    other: Any = Other(master._folder)
    plan, how, kind = cast(
        Any, Experiment(other, 7).verify_resume(machines=machines, timeout=5.0, keep=True)
    )
    assert (plan.machines, how) == (machines, {"timeout_s": 5.0, "keep": True})
    assert kind is Experiment
    assert bool(asked) is (machines > 1)
