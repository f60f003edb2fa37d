"""Why the bridge to a Ray cluster cannot connect, without Ray."""

from __future__ import annotations

import errno
import os
import platform
import socket
import threading
from pathlib import Path
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
    is_over = threading.Event()

    def give_up(why: str) -> None:
        given_up.append(why)
        is_over.set()

    with connecting._time_limit(0.01, "too slow", give_up):
        assert is_over.wait()
    assert given_up == ["too slow"]
    with connecting._time_limit(60.0, "too slow", give_up):
        pass
    assert given_up == ["too slow"]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)
                and not thread.finished.is_set()]  # fmt: skip
