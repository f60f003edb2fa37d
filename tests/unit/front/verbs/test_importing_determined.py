"""`det e import --from-determined` counts what became of everything, and asks for a password."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.client.imports.determined.storing import DeterminedImport, ImportCounts
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL, Reader
from det_jupyter.errors import DetError
from det_jupyter.front.verbs import importing
from tests.determined_database import PLAIN
from tests.determined_master import stand_in
from tests.determined_world import CLUSTER


def answer(given: str, reader: Reader = SHELL) -> str:
    options = SimpleNamespace(source=None, from_determined=given)
    call: Any = SimpleNamespace(
        options=options, client=None, reader=reader, is_shell=reader is SHELL
    )
    return importing.import_(call)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the clusters that are imported; of each, two experiments are found."""
    imported: list[str] = []

    def import_determined(_client: Any, source: Any, tell: Any) -> DeterminedImport:
        imported.append(source.cluster_id)
        tell("Experiment 7 is experiment 1 there.")
        found = DeterminedImport()
        found.counts["experiments"] = ImportCounts(imported=2, left_out=1)
        found.reasons["it has no trials"] += 1
        found.unseen.add("/mnt/c")
        return found

    monkeypatch.setattr(importing, "import_determined", import_determined)
    monkeypatch.delenv("DET_MASTER", raising=False)
    return imported


def test_what_was_found_imported_and_left_out_is_printed(
    sources: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = answer(str(PLAIN)).splitlines()
    assert sources == [CLUSTER]
    assert lines[0].split("  ")[-4:] == ["found", "imported", "here already", "left out"]
    assert lines[1].split() == ["experiments", "3", "2", "0", "1"]
    assert [line.partition("  ")[0] for line in lines[2:8]] == [
        "trials", "values of metrics", "lines of logs", "checkpoints", "models",
        "versions of models",
    ]  # fmt: skip
    assert lines[8] == "Left out, 1: it has no trials"
    assert lines[9].startswith("Checkpoints are in /mnt/c, which does not exist on this computer")
    assert capsys.readouterr().err == "Experiment 7 is experiment 1 there.\n"


def test_a_user_and_password_are_asked_for_where_that_is_possible(
    sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _text: "ann")
    monkeypatch.setattr(importing, "getpass", lambda _text: "secret")
    with stand_in() as master:
        answer(master.url, NOTEBOOK)
        assert sources == [CLUSTER]
        monkeypatch.setattr(sys, "stdin", io.StringIO("ann\nsecret\n"))
        with pytest.raises(
            DetError, match=f"set DET_MASTER={re.escape(master.url)}, and DET_USER"
        ):
            answer(master.url)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DetError, match=r"none\.sql, expected the file of a dump that is here"):
        answer(str(tmp_path / "none.sql"))
    for given in ("", "~nouser/none.sql", "x" * 5000):
        with pytest.raises(DetError, match="expected the file of a dump that is here"):
            answer(given)
