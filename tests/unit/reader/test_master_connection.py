"""The reader's client of the master."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import MasterUnreachable
from det_jupyter.reader.master_connection import MasterConnection


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def announce(**changes: object) -> None:
    fields = {
        "url": "http://127.0.0.1:9", "pid": os.getpid(), "birth": birth_of(os.getpid()),
        "started_at": 1.0, "version": "0.0.9", "protocol": PROTOCOL, "python": "p",
        "data_dir": "d",
    }  # fmt: skip
    info = MasterInfo.model_validate({**fields, **changes})
    paths.master_file().parent.mkdir(parents=True, exist_ok=True)
    paths.write_private(paths.master_file(), info.model_dump_json())


def test_documents_wait_for_a_master_of_our_version_and_for_a_folder() -> None:
    announce(protocol=PROTOCOL + 1)
    connection = MasterConnection()
    with pytest.raises(MasterUnreachable, match=f"protocol {PROTOCOL + 1}"):
        connection.client()
    paths.master_file().unlink()
    paths.master_file().mkdir()
    with pytest.raises(MasterUnreachable):
        connection.client()
    paths.master_file().rmdir()
    announce()
    connection.client().session.close()
