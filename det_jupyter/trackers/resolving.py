"""Which hosts the libraries of trackers can reach."""

from __future__ import annotations

import socket
from typing import Any

from det_jupyter.contract.values.reserved_hosts import is_reserved


def refuse_reserved() -> None:
    """Make connections to the metadata services of clouds fail, also after a redirect."""
    resolve = socket.getaddrinfo

    def checked(*given: Any, **options: Any) -> list[Any]:
        found = resolve(*given, **options)
        if any(is_reserved(str(entry[4][0])) for entry in found):
            raise socket.gaierror(socket.EAI_FAIL, "the host is one of clouds' metadata")
        return found

    socket.getaddrinfo = checked
