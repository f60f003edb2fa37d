"""Changes and profiles of a trial that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Trial
from det_jupyter.contract.messages import (
    Capsule,
    CapturedName,
    ChangeTrial,
    ExperimentView,
    ProfileTrial,
    ProfileView,
    TraceView,
    TrialView,
)
from det_jupyter.contract.messages.rank_orders import Profile
from det_jupyter.errors import ConfigError, Conflict
from tests.unit.view.view_samples import experiment, trial


class Master:
    """Refuses to change the trial itself, and notes what was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def trial(self, trial_id: int) -> Any:
        return trial(id=trial_id)

    def change(self, request: Any) -> None:
        if isinstance(request, ChangeTrial):
            raise Conflict("the trial is not active")
        self.sent.append("priority")


def ordered(master: Master) -> Trial:
    return Trial(cast("Client", master), 3, experiment_of=str)


@pytest.mark.parametrize("lr", [-1.0, 0.1])
def test_a_priority_is_left_as_it_is_if_the_rest_of_a_change_is_refused(lr: float) -> None:
    master = Master()
    with pytest.raises((ConfigError, Conflict)):
        ordered(master).change(lr=lr, priority=5)
    assert master.sent == []


def test_a_priority_alone_is_changed() -> None:
    master = Master()
    assert ordered(master).change(priority=5) is None
    assert master.sent == ["priority"]


def test_nothing_to_change_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to change"):
        ordered(Master()).change()


class Recorder:
    """Takes profiles, and has the traces of the second rank only after some polls."""

    def __init__(self, traces: list[TraceView], kind: str = "class", polls: int = 0) -> None:
        self._traces, self._polls = traces, polls
        self._captured = CapturedName(name="T", cell="", type=kind, size_bytes=1)
        self._profile = Profile(steps=2, ranks=[0, 1])

    def trial(self, trial_id: int) -> TrialView:
        self._polls -= 1
        traces = self._traces[:1] if self._polls >= 0 else self._traces
        older_traces = [TraceView(rank=0), TraceView(rank=1)]
        older = ProfileView(id=1, at=0.0, profile=self._profile, traces=older_traces)
        profile = ProfileView(id=2, at=0.0, profile=self._profile, traces=traces)
        return trial(id=trial_id, profiles=[older, profile])

    def change(self, request: Any) -> TrialView:
        assert isinstance(request, ProfileTrial)
        return self.trial(request.trial_id)

    def experiment(self, experiment_id: int) -> ExperimentView:
        capsule = Capsule(entrypoint="T", payload="", sources="", captured=[self._captured])
        return experiment().model_copy(update={"capsule": capsule})


def test_a_profile_is_returned_when_all_ranks_have_recorded_it(tmp_path: Path) -> None:
    file = tmp_path / "rank-0.json.gz"
    file.write_bytes(b"0" * 2048)
    traces = [
        TraceView(rank=0, path=str(file), size_bytes=2048, first=10, steps=2, note="of 3"),
        TraceView(rank=1, error="the disk is full"),
    ]
    handle = Trial(cast("Client", Recorder(traces, polls=2)), 3, experiment_of=str)
    found = handle.profile(2, [0, 1], timeout=5.0)
    assert repr(found) == (
        f"Rank 0: batches 10 to 11 (of 3), 2.0 kB: {file}\n"
        "Rank 1: no trace: the disk is full\n"
        "Open with https://ui.perfetto.dev or chrome://tracing."
    )
    assert (found[0].path, found[0].batches, found[1].path) == (file, range(10, 12), None)
    file.unlink()
    assert repr(found[0]).endswith(f"{file}, removed since")
    assert found[0].path is None


@pytest.mark.parametrize(("kind", "has_hint"), [("class", False), ("function", True)])
def test_a_profile_that_takes_too_long_is_told_with_the_likely_reason(
    kind: str, has_hint: bool
) -> None:
    handle = Trial(cast("Client", Recorder([TraceView(rank=0)], kind)), 3, experiment_of=str)
    with pytest.raises(Conflict) as raised:
        handle.profile(2, [0, 1], timeout=0.0)
    message = str(raised.value)
    assert message.startswith("trial 3: no trace within 0 s; trial.profiles() lists it later")
    assert ("Its entrypoint T is a function" in message) is has_hint
