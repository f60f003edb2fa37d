"""Why the bridge to a Ray cluster cannot connect, without Ray."""

from __future__ import annotations

import errno
import os
import platform
import socket
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The variables of the process: a home folder without a token."""
    variables = {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "old"}
    monkeypatch.setattr(os, "environ", variables)
    return variables


class Ray:
    """The module ray, beside a cluster that runs the same version."""

    __version__ = "2.60.0"

    def __init__(self, problem: Exception | None = None) -> None:
        self.given: list[dict[str, Any]] = []
        self._problem = problem

    def init(self, **given: Any) -> None:
        self.given.append(given)
        if self._problem is not None:
            raise self._problem


def connect_to(monkeypatch: pytest.MonkeyPatch, ray: Ray, **config: Any) -> list[str]:
    """Connect to a cluster that answers; return what was checked, in order."""
    checked: list[str] = []
    versions = {"ray_version": ray.__version__, "python_version": platform.python_version()}

    def read(module: Any, config: ClusterConfig) -> dict[str, str]:
        checked.append("versions")
        return versions

    monkeypatch.setattr(connecting, "check_port", lambda config: checked.append("port"))
    monkeypatch.setattr(connecting, "_check_need_of_token", lambda config: checked.append("token"))
    monkeypatch.setattr(connecting, "_import_ray", lambda: ray)
    monkeypatch.setattr(connecting, "_read_versions", read)
    cluster = ClusterConfig(engine="ray", address="head:6379", **config)
    assert connecting.connect(cluster, "mine", lambda why: None) is ray
    return checked


def test_a_cluster_with_tokens_is_checked_before_ray_connects(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    ray = Ray()
    checked = connect_to(monkeypatch, ray, token_file=str(token))
    assert checked == ["port", "token", "versions"]
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(token)
    assert "RAY_AUTH_TOKEN" not in environment
    assert ray.given == [
        {
            "address": "head:6379",
            "namespace": "mine",
            "log_to_driver": False,
            "configure_logging": False,
        }
    ]


def test_a_cluster_that_admits_everyone_is_asked_without_a_token(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    assert connect_to(monkeypatch, Ray(), without_token=True) == ["port", "versions"]
    assert environment["RAY_AUTH_MODE"] == "disabled"
    assert environment["RAY_AUTH_TOKEN"] == "old"


def test_a_computer_that_is_no_node_is_told_how_to_become_one(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    with pytest.raises(DetError, match=r"cannot connect \(.*no node.*\); this computer has to be"):
        connect_to(monkeypatch, Ray(ConnectionError("no node")), without_token=True)


def test_a_token_file_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    with pytest.raises(DetError, match="the token's file, /gone/token, cannot be read"):
        connect_to(monkeypatch, Ray(), token_file="/gone/token")


def test_a_token_may_be_in_variables_or_in_the_home_folder(
    environment: dict[str, str], tmp_path: Path
) -> None:
    cluster = ClusterConfig(engine="ray", address="head:6379")
    assert connecting._has_token(cluster)
    del environment["RAY_AUTH_TOKEN"]
    assert not connecting._has_token(cluster)
    assert connecting._has_token(cluster.model_copy(update={"token_file": "/f"}))
    environment["RAY_AUTH_TOKEN_PATH"] = "/f"
    assert connecting._has_token(cluster)
    del environment["RAY_AUTH_TOKEN_PATH"]
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("t")
    assert connecting._has_token(cluster)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ({}, None),
        ({"ray_version": "2.60.0"}, None),
        ({"ray_version": "2.59.0"}, "the cluster runs Ray 2.59.0 with Python "),
        ({"python_version": "3.7.1"}, "Python 3.7.1, and .* environment with Python 3.7 and"),
    ],
)
def test_a_cluster_of_another_version_is_refused_with_what_to_install(
    theirs: dict[str, str], message: str | None
) -> None:
    cluster = ClusterConfig(engine="ray", address="head:6379")
    if message is None:
        connecting._check_versions(cluster, theirs, "2.60.0")
    else:
        with pytest.raises(DetError, match=message):
            connecting._check_versions(cluster, theirs, "2.60.0")


def test_ray_is_given_up_if_it_does_not_answer_in_time() -> None:
    given_up: list[str] = []
    is_daemon: list[bool] = []
    is_over = threading.Event()

    def give_up(why: str) -> None:
        given_up.append(why)
        is_daemon.append(threading.current_thread().daemon)
        is_over.set()

    with connecting._time_limit(0.01, "too slow", give_up):
        assert is_over.wait()
    assert given_up == ["too slow"]
    assert is_daemon == [True]  # it keeps no process from ending
    with connecting._time_limit(60.0, "too slow", give_up):
        pass
    assert given_up == ["too slow"]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)
                and not thread.finished.is_set()]  # fmt: skip


SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("answer", "is_head"),
    [(SETTINGS, True), (SETTINGS[:3], False), (b"HTTP/1.1 400", False), (b"", False)],
)
def test_a_head_is_what_speaks_the_protocol_of_ray(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, is_head: bool
) -> None:
    received: list[bytes] = []

    def accept(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            received.append(connection.recv(100))
            connection.sendall(answer)

    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=accept, args=(server,))
        thread.start()
        cluster = ClusterConfig(engine="ray", address=f"127.0.0.1:{port}")
        try:
            if is_head:
                check_port(cluster)
            else:
                with pytest.raises(DetError, match="does not answer as the head of a Ray clu"):
                    check_port(cluster)
        finally:
            thread.join()
    assert received[0].startswith(b"PRI * HTTP/2.0")


@pytest.mark.parametrize(
    ("port", "hint"),
    [
        (8265, "; 8265 is the dashboard's port, and the head's is 6379 by default"),
        (10001, "; 10001 is the port of Ray's client server, and the head's is 6379 by default"),
        (6379, ""),
    ],
)
def test_another_port_of_ray_is_named(
    monkeypatch: pytest.MonkeyPatch, port: int, hint: str
) -> None:
    here, there = socket.socketpair()
    there.close()
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: here)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with pytest.raises(DetError) as caught:
        check_port(ClusterConfig(engine="ray", address=f"head:{port}"))
    found = f"head:{port}: what listens there does not answer as the head of a Ray cluster"
    assert str(caught.value) == found + hint


def test_what_is_encrypted_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: here)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with there:
        check_port(ClusterConfig(engine="ray", address="head:6379"))
        assert there.recv(1) == b""


class Client:
    """Ray's client of a cluster's head, whose answer is `found`."""

    found: Any = None
    asked: list[Any] = []

    def __init__(self, *, address: str) -> None:
        self.asked.append(address)

    def internal_kv_get(self, key: bytes, namespace: bytes, *, timeout: float) -> Any:
        self.asked.append((key, namespace))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class AuthenticationError(Exception):
    """As in Ray."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a module ray whose cluster answers as `Client.found` says."""
    module: Any = ModuleType("ray")
    module.__version__ = "2.60.0"
    module.exceptions = SimpleNamespace(AuthenticationError=AuthenticationError)
    raylet: Any = ModuleType("ray._raylet")
    raylet.GcsClient = Client
    module.initialised = []
    module.init = lambda **given: module.initialised.append(given)
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray._raylet", raylet)
    monkeypatch.setattr(Client, "asked", [])
    monkeypatch.setattr(connecting, "check_port", lambda config: None)
    return module


VERSIONS = f'{{"ray_version": "2.60.0", "python_version": "{platform.python_version()}"}}'


@pytest.mark.parametrize("found", [VERSIONS.encode(), None])
def test_a_cluster_of_this_version_is_connected_to(
    ray: Any, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], found: bytes | None
) -> None:
    monkeypatch.setattr(Client, "found", found)
    cluster = ClusterConfig(engine="ray", address="head:6379", without_token=True)
    assert connecting.connect(cluster, "mine", lambda why: None) is ray
    assert Client.asked == ["head:6379", (b"CLUSTER_METADATA", b"cluster")]
    assert [given["namespace"] for given in ray.initialised] == ["mine"]
    assert environment["RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL"] == "minor"


@pytest.mark.parametrize(
    ("found", "options", "message"),
    [
        (AuthenticationError(), {"without_token": True}, "needs a token; leave --without-token"),
        (AuthenticationError(), {}, "the cluster refuses the token; copy the head's"),
        (TimeoutError("late"), {}, r"does not answer as the head of a Ray cluster \(.*late"),
        (b"{}", {}, "the cluster admits everyone who reaches this port"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_told_with_what_to_do(
    ray: Any,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    found: Any,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(Client, "found", found)
    cluster = ClusterConfig(engine="ray", address="head:6379", **options)
    with pytest.raises(DetError, match=f"^head:6379: .*{message}"):
        connecting.connect(cluster, "mine", lambda why: None)
    assert ray.initialised == []
    assert environment["RAY_AUTH_TOKEN"] == "old"  # the wrong one is sent by a fork


def test_a_cluster_with_tokens_is_not_joined_without_one(
    ray: Any, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(Client, "found", AuthenticationError())
    del environment["RAY_AUTH_TOKEN"]
    cluster = ClusterConfig(engine="ray", address="head:6379")
    with pytest.raises(DetError, match="needs a token, and there is none here"):
        connecting.connect(cluster, "mine", lambda why: None)


def test_an_interpreter_without_ray_is_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(connecting, "check_port", lambda config: None)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "rfc3987_syntax", raising=False)
    cluster = ClusterConfig(engine="ray", address="head:6379", without_token=True)
    with pytest.raises(DetError, match=f"^{sys.executable} has no Ray "):
        connecting.connect(cluster, "mine", lambda why: None)
    assert sys.modules.pop("rfc3987_syntax", "missing") is None  # it costs a second
