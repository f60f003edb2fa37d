"""`import_from_path`, downloads that are repeated, handles in Determined's words."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest


def test_code_of_a_folder_is_imported_beside_code_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from determined import import_from_path

    for name in ("now", "then"):
        (tmp_path / name / "inner_parts").mkdir(parents=True)
        (tmp_path / name / "model_def_x.py").write_text(
            f"from inner_parts import which\nwhich = which.word\n__name__\nwhere = {name!r}\n"
        )
        (tmp_path / name / "inner_parts" / "__init__.py").write_text("")
        (tmp_path / name / "inner_parts" / "which.py").write_text(f"word = {name!r}\n")
    monkeypatch.syspath_prepend(tmp_path / "now")
    import model_def_x as now  # type: ignore[import-not-found]

    before = list(sys.path)
    with import_from_path(tmp_path / "then"):
        import model_def_x as then
    assert (now.which, then.which, then.where) == ("now", "then", "then")
    assert sys.modules["model_def_x"] is now
    assert sys.path == before
    for name in ("model_def_x", "inner_parts", "inner_parts.which"):
        sys.modules.pop(name)


def test_a_download_is_repeated_and_its_last_error_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from determined import util

    pauses: list[float] = []
    monkeypatch.setattr(util, "time", SimpleNamespace(sleep=pauses.append))
    left = [OSError("busy"), OSError("busy")]

    def download_as_string() -> bytes:
        if left:
            raise left.pop()
        return b"content"

    blob = SimpleNamespace(download_as_string=download_as_string)
    assert util.download_gcs_blob_with_backoff(blob) == b"content"
    assert len(pauses) == 2
    left[:] = [OSError("gone")] * 9
    with pytest.raises(RuntimeError, match="failed 2 times") as failed:
        util.download_gcs_blob_with_backoff(blob, n_retries=2)
    assert str(failed.value.__cause__) == "gone"


def test_arguments_without_a_meaning_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    from determined.experimental import client
    from determined.experimental.client._determined import note_once

    note_once.cache_clear()
    for _ in range(2):
        client.login(master="https://cluster", user="me")
        client.Determined(master="https://cluster", user=None)
    assert caplog.messages == [
        f"{what} has no meaning in det_jupyter, whose master is your own: ignored"
        for what in ("login()", "master=")
    ]


def test_sorting_puts_things_without_a_value_last() -> None:
    from determined.experimental.client._sorting import OrderBy, in_order

    def same(value: float | None) -> float | None:
        return value

    values = [0.5, None, 0.1, float("nan"), 0.9]
    assert in_order(values, same, OrderBy.DESCENDING, 3) == [0.9, 0.5, 0.1]
    assert in_order(values, same, OrderBy.ASCENDING)[:3] == [0.1, 0.5, 0.9]
