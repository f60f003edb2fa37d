"""Connection files of ranks' kernels, and the five sockets that they name.

<prefix>-1 ... <prefix>-5    unix sockets; the file has the prefix, and the key that signs
                             all messages
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.paths import read_private, write_private

# In the order of their numbers.
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
NUMBERS = range(1, len(PORTS) + 1)


def write_connection_file(file: Path, *, prefix: str, key: str) -> None:
    """Write a connection file for sockets with this prefix."""
    connection = {
        "transport": "ipc",
        "ip": prefix,
        **dict(zip(PORTS, NUMBERS, strict=True)),
        "key": key,
        "signature_scheme": "hmac-sha256",
        "kernel_name": "det-worker",
    }
    write_private(file, json.dumps(connection, indent=1))


def read_connection_file(file: Path) -> dict[str, Any]:
    """Return the content of a connection file; {} if it does not exist."""
    try:
        connection: dict[str, Any] = json.loads(read_private(file))
    except FileNotFoundError:
        return {}
    return connection


def socket_path(prefix: str, number: int) -> Path:
    """Return the path of a socket, as zmq makes it of a connection file."""
    return Path(f"{prefix}-{number}")
