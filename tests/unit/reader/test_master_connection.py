"""The reader's client of the master."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import PROTOCOL
from det_jupyter.errors import MasterUnreachable
from det_jupyter.reader.master_connection import MasterConnection
from tests.unit.front.jupyter_server.test_master_lookup import announce


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


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
