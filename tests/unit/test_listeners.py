"""Each place where a port or a socket is opened is known, and what keeps strangers out there.

A new one without a row fails: docs/security.md and tests/e2e/test_access.py are for it, too.
"""

from __future__ import annotations

import ast
import re

from tests.rooms import PACKAGE, modules_with, tree

OPENING = {
    "bind", "bind_sockets", "bind_unix_socket", "create_datagram_endpoint", "create_server",
    "create_unix_server", "create_unix_connection", "listen", "start_server",
    "start_unix_server", "HTTPServer", "TCPServer", "ThreadingHTTPServer", "TCPStore", "Listener",
}  # fmt: skip
CALLED = re.compile(rf"\b(?:{'|'.join(OPENING)})\(")
NO_SOCKETS = {"inspect.signature(evaluate)", "signature", "self._samples"}  # they `bind`, `listen`
TLS = "TLS, and a token of each agent or a secret of each gang"
FOLDER = "a socket in a 0700 folder"
PLACES = {
    "master/serve.py": "the master's token (http/guard.py, reader/server.py)",
    "master/http/server.py": "what it serves has a guard (guard.py, agent_listener.py)",
    "master/service/consoles.py": FOLDER,
    "contract/host/tls_listener.py": TLS,
    "contract/host/ports.py": "nothing is accepted: it finds a free port",
    "agent/tunnel/copies.py": FOLDER,
    "agent/tunnel/listener.py": TLS,
    "agent/tunnel/part.py": "a socket in a 0700 folder; a port that the ranks' proofs guard",
    "agent/tunnel/peers.py": "every connection is closed: it is a check whether ports are open",
    "core/ranks/gathering.py": "both sides prove that they have the secret of the gang",
    "reader/server.py": "the master's token",
    "rank/rendezvous.py": "ranks prove that they have the secret of the gang (see known gaps)",
}


def places_that_open() -> dict[str, list[str]]:
    """Return the calls that open a port or socket, by file."""
    found: dict[str, list[str]] = {}
    for file in modules_with(CALLED):
        for node in ast.walk(tree(file)):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
            if name in OPENING and owner not in NO_SOCKETS:
                where = file.relative_to(PACKAGE).as_posix()
                found.setdefault(where, []).append(f"{owner}.{name}")
    return found


def test_every_place_that_opens_a_port_or_socket_has_a_row() -> None:
    found = places_that_open()
    without = {where: calls for where, calls in found.items() if where not in PLACES}
    assert not without, f"what keeps strangers out there? {without}"
    assert PLACES.keys() - found.keys() <= {"reader/server.py"}
