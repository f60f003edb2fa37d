"""Experiments and models of Determined in the master's database: each once, however often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from torch import nn

from det_jupyter.client import Client, Experiment
from det_jupyter.client.handles.checkpoint import Checkpoint
from det_jupyter.client.imports.determined.dump import DeterminedDump
from det_jupyter.client.imports.determined.master import DeterminedMaster
from det_jupyter.client.imports.determined.records import DeterminedSource
from det_jupyter.client.imports.determined.storing import DeterminedImport, import_determined
from det_jupyter.client.sharing.archive_export import export_archive
from det_jupyter.client.sharing.archive_import import import_archive
from det_jupyter.contract.messages import (
    CreateModel,
    DropCheckpoints,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    ImportExperiment,
    State,
)
from det_jupyter.errors import Conflict, DetError
from det_jupyter.master.background.deleting import remove_files
from det_jupyter.master.machine.rules.retention import experiment_deletion
from tests.determined_checkpoints import write_checkpoint
from tests.determined_database import PLAIN
from tests.determined_master import StandIn, stand_in
from tests.determined_world import HOST_PATH, KEPT, OTHER
from tests.integration.master_support import Bench
from tests.integration.test_archives import master as a_master
from tests.integration.test_importing import Importer


class Here(Importer):
    """A client of a master, in one process with it, for whole experiments and models."""

    def change(self, request: Any) -> Any:
        if isinstance(request, ImportExperiment):
            return super().change(request)
        return self._bench.service.apply(request)

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        return self._bench.service.views.find(query)

    def experiment(self, number: int) -> ExperimentView:
        return self._bench.service.views.experiment(number)

    def models(self) -> list[Any]:
        return self._bench.service.views.models()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "master.db")
    yield bench
    bench.service.close()


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Return a master of Determined; one of its checkpoints is here, in a folder."""
    monkeypatch.delenv("DET_MASTER", raising=False)
    write_checkpoint(tmp_path / "checkpoints" / KEPT, [MODEL], steps_completed=8, hparams=HPARAMS)
    with stand_in(str(tmp_path)) as running:
        yield running


MODEL, HPARAMS = nn.Linear(3, 1), {"width": 3, "lr": 0.1}


def run(bench: Bench, source: DeterminedSource, **options: Any) -> DeterminedImport:
    data = bench.store.path.parent / "data"
    return import_determined(cast("Client", Here(bench, data, **options)), source)


def from_dump(bench: Bench) -> DeterminedImport:
    with DeterminedDump(PLAIN) as source:
        return run(bench, source)


def from_master(bench: Bench, master: StandIn, **options: Any) -> DeterminedImport:
    with DeterminedMaster(master.url, lambda _address: ("ann", "secret")) as source:
        return run(bench, source, **options)


def numbers(found: DeterminedImport) -> dict[str, tuple[int, int, int, int]]:
    return {
        kind: (each.found, each.imported, each.known, each.left_out)
        for kind, each in found.counts.items()
    }


def test_a_dump_becomes_experiments_with_all_that_it_has(bench: Bench) -> None:
    found = from_dump(bench)
    assert numbers(found) == {
        "experiments": (4, 3, 0, 1),
        "trials": (4, 4, 0, 0),
        "values": (25, 25, 0, 0),
        "lines": (2, 2, 0, 0),
        "checkpoints": (3, 2, 0, 1),
        "models": (1, 1, 0, 0),
        "versions": (2, 1, 0, 1),
    }
    views = [bench.service.views.experiment(number) for number in found.experiments]
    assert [(each.name, each.state, each.is_archived) for each in views] == [
        ("line", State.COMPLETED, False),
        ("lines", State.COMPLETED, True),
        ("more", State.CANCELED, False),  # it trained when the dump was made
    ]
    assert views[0].labels == ["digits", "imported"]
    assert "noted there: The best one." in views[0].capsule.notices
    assert views[0].capsule.has_code
    assert "it was ACTIVE when it was imported" in views[2].capsule.notices
    (trial,) = views[0].trials
    assert (trial.hparams["lr"], trial.best_metric, trial.restarts) == (0.1, 0.125, 1)
    assert [each.state for each in views[1].trials] == [State.COMPLETED, State.ERROR]
    assert [each.best_metric for each in views[1].trials] == [0.125, None]  # NaN is the worst
    groups = [data["group"] for data in bench.metrics() if "group" in data]
    assert groups.count("inference") == 1
    assert bench.logs() == ["begins", "WARNING: a\ttab and a back\\slash"]
    kept = bench.service.machine.state.checkpoints[KEPT]
    assert (kept.path, kept.steps_completed, kept.size_bytes, kept.searcher_metric) == (
        f"{HOST_PATH}/checkpoints/{KEPT}", 8, 1024, 0.125,
    )  # fmt: skip
    assert found.unseen == {f"{HOST_PATH}/checkpoints"}
    (model,) = bench.service.views.models()
    assert (model.description, model.notes, model.metadata["use"]) == ("A line", "Long.", "test")
    assert [(each.uuid, each.name) for each in model.versions] == [(KEPT, "first")]
    assert sum(found.reasons.values()) == 3


def test_what_is_here_already_is_not_imported_again(bench: Bench, master: StandIn) -> None:
    from_dump(bench)
    before = bench.service.machine.state.model_dump(exclude={"seq"})
    again = from_dump(bench)
    live = from_master(bench, master)  # the master of which that is a dump
    for found in (again, live):
        assert {kind: each.imported for kind, each in found.counts.items()} == dict.fromkeys(
            found.counts, 0
        )
        assert found.counts["models"].known == found.counts["versions"].known == 1
    assert again.counts["experiments"].known == 3
    after = bench.service.machine.state.model_dump(exclude={"seq"})
    assert {**after, "experiments": {}} == {**before, "experiments": {}}


def test_an_import_that_was_cut_off_goes_on_and_doubles_nothing(
    bench: Bench, master: StandIn, tmp_path: Path
) -> None:
    with pytest.raises(ConnectionError):
        from_master(bench, master, breaks_after=1)
    last, cuts = None, 0
    while last is None:
        master.left = 3 + 4 * cuts
        try:
            last = from_master(bench, master)
        except DetError:
            cuts += 1
    assert cuts > 3
    assert last.counts["experiments"].left_out == 2  # one trains there, one has no trial
    master.left = None
    whole = Bench(tmp_path / "whole.db")
    from_master(whole, master)
    for part in ("metrics", "logs"):
        assert getattr(bench, part)() == getattr(whole, part)()
    uuids = [*bench.service.machine.state.checkpoints]
    assert uuids == [*whole.service.machine.state.checkpoints] == [KEPT, OTHER]
    whole.service.close()


def test_what_was_complete_is_not_read_again(bench: Bench, master: StandIn) -> None:
    from_master(bench, master)
    master.requests.clear()
    assert from_master(bench, master).counts["experiments"].known == 2
    assert "/api/v1/experiments/1/trials" not in master.requests
    assert not any("model_def" in path for path in master.requests)


def test_its_checkpoint_is_loaded_and_its_files_are_never_deleted(
    bench: Bench, master: StandIn, tmp_path: Path
) -> None:
    found = from_master(bench, master)
    assert found.unseen == {str(tmp_path / "checkpoints")}  # the other one is not here
    state = bench.service.machine.state
    trial = Checkpoint(state.checkpoints[KEPT], tmp_path).load()
    assert trial.model.weight.equal(MODEL.weight)
    with pytest.raises(Conflict, match=f"checkpoint {OTHER} was imported: its files"):
        bench.service.apply(DropCheckpoints(uuids=[OTHER]))
    command = experiment_deletion(state, state.experiment(1))
    assert remove_files(command, tmp_path / "data").problems == []
    assert (tmp_path / "checkpoints" / KEPT / "state_dict.pth").exists()


def test_an_archive_of_it_has_the_checkpoint_and_is_imported_elsewhere(
    master: StandIn, tmp_path: Path
) -> None:
    with a_master(tmp_path / "here") as (_, client):
        with DeterminedMaster(master.url, lambda _address: ("ann", "secret")) as source:
            number = import_determined(client, source).experiments[0]
        export_archive(client, number, tmp_path / "line.zip")
    with a_master(tmp_path / "there") as (_, client):
        experiment = Experiment(
            client, import_archive(client, tmp_path / "line.zip").stored.experiment_id
        )
        checkpoint = experiment.best_checkpoint()
        assert (checkpoint.uuid, checkpoint.view.is_foreign) == (KEPT, False)
        assert checkpoint.load().model.weight.equal(MODEL.weight)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("12:01:02.25+00\t2023", "12:01:02.25+00\tinfinity 2023", "Invalid isoformat string"),
        ('{"lr": 0.2, "width": 3, "global_batch_size": 4}', "[1]", "hparams: Input should be"),
        ('"steps_completed": 8', '"steps_completed": -8', "steps_completed: Input should be"),
        (KEPT, "../../etc", "uuid: String should match"),
        ("\tLong.\t", f"\t{'x' * 30_000}\t", "model line: notes: String should have at most"),
        ("\tline\tA line", "\t\\n\x1b[31mred\tA line", "model ; red: name: got"),
    ],
)
def test_what_is_not_sound_is_left_out_and_the_rest_imported(
    bench: Bench, tmp_path: Path, was: str, now: str, said: str
) -> None:
    text = PLAIN.read_text()
    assert was in text
    (tmp_path / "d.sql").write_text(text.replace(was, now))
    with DeterminedDump(tmp_path / "d.sql") as source:
        found = run(bench, source)
    assert found.counts["experiments"].imported in (1, 2, 3)
    assert any(said in reason for reason in found.reasons), found.reasons
    assert not any("\n" in reason or "\x1b" in reason for reason in found.reasons)


def test_metrics_that_are_not_sound_do_not_stop_the_experiments_after_them(
    bench: Bench, tmp_path: Path
) -> None:
    text = PLAIN.read_text().replace("0.25}]}\t4\t0\tf\t2", "0.25}]}\t-4\t0\tf\t2")
    (tmp_path / "d.sql").write_text(text)
    with DeterminedDump(tmp_path / "d.sql") as source:
        found = run(bench, source)
    assert found.counts["experiments"].left_out == 1  # the one without trials
    assert any("further metrics and logs of experiment 1" in each for each in found.reasons)
    assert len(bench.service.machine.state.experiments) == 3


def test_a_model_of_ones_own_is_not_changed(bench: Bench) -> None:
    Here(bench, bench.store.path.parent).change(CreateModel(name="line"))
    found = from_dump(bench)
    assert found.counts["models"].left_out == 1
    assert found.reasons["a model line is here already, of your own"] == 1
    assert bench.service.views.model("line").versions == []
