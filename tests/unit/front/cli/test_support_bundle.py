"""A support bundle has all that could be collected, without secrets, for the user alone."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from det_jupyter.front.cli import support_bundle
from det_jupyter.front.cli.redacting import REMOVED, Redactor
from det_jupyter.front.cli.support_bundle import _Collected, _tail


def test_what_cannot_be_made_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    collected = _Collected()
    collected.redactor = Redactor(["hunter22"])
    collected.add("logs/a.log", lambda: "joined with hunter22")
    collected.add("logs/b.log", lambda: str(1 / 0))
    collected.add_document("master/info.json", lambda: {"password": "x1y2", "pid": 7})
    path = tmp_path / "bundle.tar.gz"
    size = collected.write(path, "folder")
    assert size == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        files = {
            member.name: (tar.extractfile(member) or pytest.fail("no file")).read().decode()
            for member in tar.getmembers()
        }
    assert files.keys() == {
        "folder/logs/a.log", "folder/master/info.json", "folder/problems.txt",
    }  # fmt: skip
    assert files["folder/logs/a.log"] == f"joined with {REMOVED}"
    assert json.loads(files["folder/master/info.json"]) == {"password": REMOVED, "pid": 7}
    assert files["folder/problems.txt"].startswith("logs/b.log: ")


def test_the_end_of_a_log_begins_with_a_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "master.log"
    log.write_text("token=abc\nsecond\nthird\n", encoding="utf-8")
    assert _tail(log) == "token=abc\nsecond\nthird\n"
    for num_bytes in (13, 14, 15):  # from the end; 13 are the last two lines
        monkeypatch.setattr(support_bundle, "_LOG_BYTES", num_bytes)
        assert _tail(log) == "second\nthird\n"
    monkeypatch.setattr(support_bundle, "_LOG_BYTES", 12)
    assert _tail(log) == "third\n"
