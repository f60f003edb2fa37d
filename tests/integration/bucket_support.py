"""A bucket for tests, with keys for it in the environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.storage.buckets.process import transfers
from tests.bucket_keys import KEYS
from tests.bucket_server import BucketServer, serving

_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")


@contextmanager
def only_keys(given: Mapping[str, str], home: Path) -> Iterator[None]:
    """Have these keys for buckets in the environment, no others, and an empty home."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
            patch.delenv(name)
        for name, value in given.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(home))
        patch.setenv(paths.HOME_VARIABLE, str(home / "det"))
        try:
            yield
        finally:
            transfers.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketServer]:
    """Serve a bucket for the tests of a module, with keys for it in the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with serving() as server, only_keys(KEYS, tmp_path_factory.mktemp("home")):
        yield server


@pytest.fixture
def bucket(server: BucketServer) -> Iterator[BucketServer]:
    """Return the server, with an empty bucket."""
    server.clear()
    yield server
    server.heal()
