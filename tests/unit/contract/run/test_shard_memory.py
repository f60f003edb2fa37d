"""What a rank does if its agent does not send the copy of another rank."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from det_jupyter.contract.run import shard_memory
from det_jupyter.contract.run.shard_memory import UNREACHED, CopyRequest, fetch_copy

REQUEST = CopyRequest(rank=3, number=1, steps_completed=12, num_bytes=32)


def fetched(folder: Path) -> bytes:
    return fetch_copy(folder / "link", REQUEST, memoryview(bytearray(REQUEST.num_bytes)))


def test_a_request_is_a_line() -> None:
    assert REQUEST.to_line() == b"3 1 12 32\n"
    assert CopyRequest.from_line(b"3 1 12 32\n") == REQUEST


def test_a_copy_cannot_be_fetched_without_an_agent(tmp_path: Path) -> None:
    assert fetched(tmp_path) == UNREACHED
    (tmp_path / "link").symlink_to(tmp_path / "socket")
    assert fetched(tmp_path) == UNREACHED


def test_an_agent_that_is_silent_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_memory, "_SILENT_S", 0.05)
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        assert fetched(tmp_path) == UNREACHED
