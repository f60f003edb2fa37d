"""The code of an experiment of Determined is unpacked, if it is of a size that is run here."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from det_jupyter.client.imports.determined.code import capsule_from
from det_jupyter.client.imports.determined.configuration import parse_found
from det_jupyter.contract.host.blobs import BlobStore
from tests.determined_world import ROWS

SETTINGS, _ = parse_found(ROWS["experiments"][0]["config"], [], 1)


def packed(name: str, size: int) -> bytes:
    """Return a tar.gz file that ends after the header of its one file."""
    header = tarfile.TarInfo(name)
    header.size = size
    return gzip.compress(header.tobuf())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (packed("zeros", 2**40), "it has more than 95 MiB"),
        (packed("../outside", 0), "outside the destination"),
        (b"junk", "not a gzip file"),
    ],
    ids=["too large", "outside", "not packed"],  # a packed file has its time in it
)
def test_code_that_cannot_be_unpacked_is_left_out_and_named(
    tmp_path: Path, code: bytes, said: str
) -> None:
    capsule = capsule_from(code, SETTINGS, BlobStore(tmp_path / "blobs"), [])
    assert not capsule.has_code
    assert said in capsule.notices[-1]
