"""Each kind of end of a trial is said right: which rank, where, why, and how often."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import State
from det_jupyter.errors import RankFailed
from tests.e2e.crash_kinds import FILE, KINDS, Crash
from tests.placed_trial import submit_cell
from tests.processes import DetHome

pytestmark = pytest.mark.e2e


def submit(client: Client, kind: Crash) -> Experiment:
    """Submit the trial, as if a notebook's cell 5 had defined it."""
    return submit_cell(client, kind.source, FILE, kind.config)


@pytest.fixture(scope="module")
def experiments(home: DetHome) -> Iterator[dict[str, Experiment]]:
    """Return an experiment of each kind, by its name; they run beside each other."""
    client = home.client()
    yield {kind.name: submit(client, kind) for kind in KINDS}
    client.session.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "_"))
def test_each_kind_of_end_is_said(experiments: dict[str, Experiment], kind: Crash) -> None:
    experiment = experiments[kind.name]
    if kind.error is None:
        experiment.wait()
    else:
        with pytest.raises(RankFailed):
            experiment.wait()
    trial = experiment.view.trials[0]
    assert [re.search(kind.notice, notice) is not None for notice in trial.notices] == (
        [True] if kind.notice else []
    )
    if kind.error is None:
        assert (trial.state, trial.failure) == (State.COMPLETED, None)
        return
    failure = trial.failure
    assert trial.state is State.ERROR
    assert failure is not None
    assert re.search(kind.error, failure.error), failure.error
    assert (failure.where, failure.rank) == (kind.place, kind.rank)
    assert (failure.exit_code, failure.batch) == (kind.exit_code, kind.batch)
    assert failure.times == kind.times
    assert "det_jupyter/" not in failure.traceback
