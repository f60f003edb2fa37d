"""Verbs that write files: code, tables, logs; and their errors."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    Divergence,
    FailureView,
    LogLine,
    LogPage,
    LogQuery,
    State,
)
from det_jupyter.contract.trial.context_dir import pack_context, plan_context
from det_jupyter.errors import Conflict, DetError
from tests.unit.front.verbs.answers import Answering, answer_to
from tests.unit.view.view_samples import CREATED_AT, capsule, curve, trial


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answering:
    monkeypatch.chdir(tmp_path)
    return Answering(tmp_path)


def brings(master: Answering, **changes: Any) -> None:
    master.view = master.view.model_copy(update={"capsule": capsule(**changes)})


def of_folder(master: Answering, tmp_path: Path) -> Any:
    """Return what stands for a folder with two files."""
    here = tmp_path / "here"
    (here / "nets").mkdir(parents=True)
    (here / "train.py").write_text("import nets.wide\n")
    (here / "nets" / "wide.py").write_text("WIDTH = 3\n")
    blobs = BlobStore(Path(master.session.info.data_dir) / "blobs")
    return pack_context(plan_context(here), blobs)


def written(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.mark.parametrize("is_there", [False, True])
def test_the_folder_of_an_experiment_is_written_with_its_cells(
    master: Answering, tmp_path: Path, is_there: bool
) -> None:
    out = tmp_path / "out"
    if is_there:
        out.mkdir()  # an empty one does
    brings(master, context=of_folder(master, tmp_path))
    assert answer_to(master, f"e download-model-def 7 -o {out}").splitlines() == [
        f"Wrote the 2 files of the folder of experiment 7 to {out}",
        f"Wrote 1 source of experiment 7 to {out}",
    ]
    assert written(out) == {
        "train.py": "import nets.wide\n",
        "nets/wide.py": "WIDTH = 3\n",
        "cell_5.py": "class T: ...\n",
    }


def test_code_goes_by_default_to_a_folder_named_after_its_experiment(
    master: Answering, tmp_path: Path
) -> None:
    brings(master, context=of_folder(master, tmp_path), payload="")
    said = answer_to(master, "e download-model-def 7")
    assert said == "Wrote the 2 files of the folder of experiment 7 to experiment-7-code"
    assert len(written(tmp_path / "experiment-7-code")) == 2


def test_an_experiment_without_code_writes_none(master: Answering, tmp_path: Path) -> None:
    brings(master, payload="")
    said = answer_to(master, f"e download-model-def 7 -o {tmp_path / 'out'}")
    assert said == "Experiment 7 brought no code of its own."
    assert not (tmp_path / "out").exists()


def test_code_is_not_written_over_what_is_there(master: Answering, tmp_path: Path) -> None:
    brings(master, context=of_folder(master, tmp_path))
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    for out in (file, full):
        with pytest.raises(Conflict, match=f"{out} is not an empty folder; give another one with"):
            answer_to(master, f"e download-model-def 7 -o {out}")
    assert file.read_text() == "mine"
    assert written(full) == {"notes.txt": "mine"}


def test_tables_are_written_to_a_folder_that_is_made_and_then_anew(
    master: Answering, tmp_path: Path
) -> None:
    out = tmp_path / "of" / "monday"
    for name in ("before", "after"):
        master.view = master.view.model_copy(update={"name": name})
        answer_to(master, f"e describe 7 --outdir {out}")
        [row] = csv.DictReader((out / "experiments.csv").read_text().splitlines())
        assert (row["Name"], row["Progress"]) == (name, "0.4328")
    assert sorted(written(out)) == ["experiments.csv", "trials.csv", "workloads.csv"]


def test_a_table_or_a_checkpoint_that_cannot_be_written_is_told_with_its_path(
    master: Answering, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(DetError, match=f"{file}/experiments.csv: cannot be written: .+"):
        answer_to(master, f"e describe 7 --outdir {file}")
    with pytest.raises(DetError, match=f"{file}/below: cannot be written: Not a directory"):
        answer_to(master, f"c download uuid-10 -o {file}/below")
    assert file.read_text() == "mine"


def test_a_metric_without_values_yet_is_no_row_of_the_summary(
    master: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = [curve("training", "loss", [2.0, 1.0]), curve("training", "later", [])]
    monkeypatch.setattr(master, "curves", lambda experiment_id: curves)
    said = answer_to(master, "t describe 1 --metrics-summary")
    assert [line.split()[1] for line in said.splitlines() if line.startswith("training")] == [
        "loss"
    ]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_bar_that_is_followed_to_the_end_stays(
    master: Answering,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_stopped: bool,
) -> None:
    bar = LogLine(id=1, at=CREATED_AT, trial_id=1, run=1, rank=0, text="10%", is_open=True)

    def logs(trial_id: int, query: LogQuery) -> LogPage:
        if query.after:
            raise KeyboardInterrupt
        return LogPage(lines=[bar], total=1, last_id=1, is_over=not is_stopped)

    monkeypatch.setattr(master, "logs", logs)
    said = answer_to(master, "t logs 1 -f")
    assert capsys.readouterr().out.endswith("10%\n")
    assert said == (
        "Stopped following. Trial 1 goes on."
        if is_stopped
        else "It has ended: no more lines will come."
    )


def test_lines_for_programs_have_words_of_any_language_as_they_are(master: Answering) -> None:
    master.lines = [master.lines[0].model_copy(update={"text": "größer ✓"})]
    assert '"log": "größer ✓"' in answer_to(master, "t logs 1 --json")


def test_tables_of_what_failed_are_followed_by_the_reason(master: Answering) -> None:
    error = FailureView(rank=1, exit_code=1, at=1.0, error="ValueError: no such file")
    divergence = Divergence(metric="loss", value="NaN", since=40)
    trials = [
        trial(id=1, state=State.ERROR, failure=error),
        trial(id=2, state=State.ERROR, divergence=divergence),
        trial(id=3, state=State.COMPLETED, failure=error),  # a later run went well
    ]
    master.view = master.view.model_copy(update={"trials": trials, "message": "trial 1: no file"})
    assert answer_to(master, "e describe 7").splitlines()[-4:] == [
        "",
        "Experiment 7: trial 1: no file",
        "Trial 1: ValueError: no such file",
        "Trial 2: loss is NaN since batch 40",
    ]
    assert "no such file" not in answer_to(master, "e describe 7 --csv")
    assert answer_to(master, "t describe 1").endswith("\n\nTrial 1: ValueError: no such file")
