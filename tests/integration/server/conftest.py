"""pytest-jupyter's fixtures, for this folder only: some of them apply to every test."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_server import _sysinfo
from jupyter_server.auth import Authorizer
from traitlets.config import Config

from det_jupyter.contract.host import paths
from tests.integration.server.support import Client

_LIMITS = resource.getrlimit(resource.RLIMIT_NOFILE)
from pytest_jupyter.jupyter_server import *  # noqa: E402, F403

resource.setrlimit(resource.RLIMIT_NOFILE, _LIMITS)  # importing it sets 4096, for all our tests


class Permissions(Authorizer):
    """Lets users do what a test says; everything unless it says so."""

    allowed: set[tuple[str, str]] | None = None

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return self.allowed is None or (action, resource) in self.allowed


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let users do these things only."""

    def only(*allowed: tuple[str, str]) -> None:
        monkeypatch.setattr(Permissions, "allowed", set(allowed))

    return only


@pytest.fixture
def det_options() -> dict[str, Any]:
    """Options of the extension; tests override it."""
    return {}


@pytest.fixture
def is_strict() -> bool:
    """Whether the server itself refuses strangers; if not, which is usual, each handler does."""
    return True


@pytest.fixture  # type: ignore[no-redef]  # as pytest-jupyter means it
def jp_server_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, det_options: dict[str, Any], is_strict: bool
) -> Config:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "det"))
    options = {"start_master": False, **det_options}
    return Config(
        {
            "ServerApp": {
                "jpserver_extensions": {"det_jupyter": True, "jupyter_server_terminals": False},
                "allow_unauthenticated_access": not is_strict,
                "authorizer_class": Permissions,
            },
            "DetJupyterApp": options,
        }
    )


@pytest.fixture  # type: ignore[no-redef]  # as pytest-jupyter means it
def jp_nbconvert_templates() -> None:
    """Copy no templates of nbconvert, which pytest-jupyter does for each server."""


@pytest.fixture(autouse=True)
def _server_asks_git_for_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep servers from starting git, as they do where they lie in a repository."""
    monkeypatch.setattr(_sysinfo, "pkg_commit_hash", lambda folder: ("", ""))


@pytest.fixture
def client(
    jp_serverapp: Any, http_server_client: Any, jp_base_url: str, jp_http_port: int
) -> Client:
    """What talks to the server."""
    return Client(jp_serverapp, http_server_client, jp_base_url, jp_http_port)


@pytest.fixture
def extension(jp_serverapp: Any) -> Any:
    """The extension in the server."""
    return jp_serverapp.extension_manager.extension_points["det_jupyter"].app
