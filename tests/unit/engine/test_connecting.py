"""Why the bridge to a Ray cluster cannot connect, without Ray."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.engine.ray import connecting
from det_jupyter.engine.ray.connecting import check_port
from det_jupyter.errors import DetError


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError("timed out"), r"\(no answer within 3 s\); give the address"),
        (TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), r"\(Connection timed out\)"),
        (OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), r"\(Connection refused\)"),
        (socket.gaierror(-2, "unknown"), "there is no computer of the name head"),
    ],
)
def test_a_port_that_cannot_be_reached_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, error: OSError, why: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(DetError, match=f"^head:1: .*{why}"):
        check_port(ClusterConfig(engine="ray", address="head:1"))


def test_a_program_that_is_no_cluster_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_PORT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(DetError, match="does not answer as the head of a Ray cluster"):
            check_port(ClusterConfig(engine="ray", address=f"127.0.0.1:{port}"))
