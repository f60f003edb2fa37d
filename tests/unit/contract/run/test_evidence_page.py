"""The evidence page: what a rank writes is what the agent reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.contract.run.evidence_page import EvidencePage, create_evidence_page


def test_records_of_ranks_are_apart_and_read_as_they_were_written(tmp_path: Path) -> None:
    create_evidence_page(tmp_path / "evidence", 2)
    writer, reader = (EvidencePage(tmp_path / "evidence") for _ in range(2))
    writer.set(1, "pid", 71)
    writer.set(1, "entered", 3)
    writer.set_own_threads(1, range(100, 130))
    writer.set_collective(1, b"all_reduce [1000, 20] float32")
    writer.set_collective(1, b"barrier")
    assert reader.num_ranks == 2
    assert reader.read(0).pid == 0
    assert reader.read(0).collective == ""
    found = reader.read(1)
    assert (found.pid, found.counts, found.collective) == (71, (0, 0, 3), "barrier")
    assert found.own_threads == frozenset(range(100, 116))
    writer.set_collective(1, "é".encode() * 300)
    assert reader.read(1).collective == "é" * 124
    for page in (writer, reader):
        page.close()


def test_a_page_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="evidence"):
        EvidencePage(tmp_path / "evidence")
