"""Azurite, a server that speaks Azure's protocol for blobs: https://github.com/Azure/Azurite."""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import httpx

PROGRAM = shutil.which("azurite-blob")
ACCOUNT, CONTAINER = "acme", "models"
KEY = base64.b64encode(b"a key of the tests, of 32 bytes.").decode()
LOCATION = f"azure://{ACCOUNT}.blob.core.windows.net/{CONTAINER}"
_VERSION, _EXPIRY = "2019-12-12", "2099-01-01T00:00:00Z"


def sas_token(rights: str) -> str:
    """Return a shared access signature for the account.

    Args:
        rights: Its rights, in the order of "rwdlc": to read, write, delete, list and create.
    """
    lines = (ACCOUNT, rights, "b", "sco", "", _EXPIRY, "", "", _VERSION, "")
    digest = hmac.digest(base64.b64decode(KEY), "\n".join(lines).encode(), "sha256")
    names = {"sv": _VERSION, "ss": "b", "srt": "sco", "sp": rights, "se": _EXPIRY}
    return urlencode(names | {"sig": base64.b64encode(digest).decode()})


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Serve an empty container; yield the variables that lead obstore to it, without keys."""
    assert PROGRAM is not None
    process = subprocess.Popen(
        [PROGRAM, "--blobPort", "0", "--inMemoryPersistence", "--silent", "--disableTelemetry",
         "--skipApiVersionCheck"],
        env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "listens on" in line)
        url = line.split()[-1]
        created = f"{url}/{ACCOUNT}/{CONTAINER}?restype=container&{sas_token('rwdlc')}"
        httpx.put(created).raise_for_status()
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
    finally:
        process.terminate()
        process.communicate()
