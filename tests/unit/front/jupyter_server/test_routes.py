"""Which requests of the master pages may make: all of them, but for those that are named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from det_jupyter.contract.messages import AnyChange
from det_jupyter.errors import NotFound
from det_jupyter.front.jupyter_server.routes import ACTIONS, RESOURCES, ROUTES, find_route
from det_jupyter.master import http

NOT_FOR_PAGES = {
    ("POST", "agents/*/register"),
    ("POST", "trials/*/metrics"),  # of imported runs, by `det e import`
    ("POST", "trials/*/logs"),  # of imported experiments
    ("GET", "experiments/*/capsule"),  # of `det e export-archive`
    ("GET", "trackers/work/*"),  # of the program that sends to trackers
    ("PUT", "trackers/*"),
    ("GET", "experiments/*/trackers"),  # of `det e sync`
    ("POST", "experiments/*/trackers"),
    ("GET", "agents/*/commands"),
    ("POST", "agents/*/samples"),  # of the reader
    ("POST", "agents/*/reports"),
    ("POST", "unmanaged/*/reports"),
    ("GET", "agents/*/clock"),  # of agents elsewhere, from here
    ("POST", "agents/*/runs/*/start"),
    ("GET", "agents/*/blobs/*"),
    ("GET", "agents/*/checkpoints/*/files"),
    ("PUT", "agents/*/runs/*/checkpoints/*/files"),
    ("PUT", "agents/*/runs/*/files"),
    ("GET", "agents/*/runs/*/checkpoints/*"),
    ("POST", "agents/*/kernels"),
    ("GET", "agents/*/tunnels/*"),
    ("POST", "agents/*/tunnels/*"),
    ("POST", "agents/*/runs/*/checkpoints/*"),  # to here
    ("GET", "agents/*/probe"),
    ("POST", "agents/*/probe"),
    ("POST", "agents/*/checks/*"),
    ("POST", "agents/check"),  # of notebooks and shells
    ("GET", "clusters"),
    ("POST", "clusters"),
    ("DELETE", "clusters/*"),
    ("GET", "alerts"),
    ("POST", "alerts/test"),
    ("GET", "disks"),
    ("GET", "checkpoints"),
    ("POST", "checkpoints/gc"),
    ("POST", "disks/free"),
    ("GET", "experiments/*/room"),
    ("GET", "experiments/*/feed"),  # of senders to trackers
    ("POST", "reader/end"),  # of the server extension
    ("GET", "reader"),  # of handles and shells
}


def routes_of_the_master() -> Iterator[tuple[str, str]]:
    """Yield methods and paths, `*` for what is variable, from the decorators in the code."""
    for file in Path(http.__path__[0]).glob("routes_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            for call in getattr(node, "decorator_list", []):
                if ast.unparse(call).startswith("routes."):
                    path = call.args[0]
                    text = names[path.id] if isinstance(path, ast.Name) else path.value
                    parts = text.strip("/").split("/")
                    pattern = "/".join("*" if "{" in part else part for part in parts)
                    yield call.func.attr.upper(), pattern
    for change in get_args(AnyChange):
        parts = change.path.strip("/").split("/")
        yield change.method, "/".join("*" if "{" in part else part for part in parts)


def test_every_request_of_the_master_is_for_pages_or_is_not() -> None:
    for_pages = {(route.method, "/".join(route.pattern)) for route in ROUTES}
    assert for_pages | NOT_FOR_PAGES == set(routes_of_the_master())
    assert not for_pages & NOT_FOR_PAGES


def test_every_route_names_a_resource_and_an_action() -> None:
    for route in ROUTES:
        assert route.resource in RESOURCES
        assert route.action in ACTIONS
        assert route.action == "read" or route.method != "GET"


@pytest.mark.parametrize(
    ("method", "path", "passed", "resource", "action"),
    [
        ("GET", "experiments/3", "experiments/3", "experiments", "read"),
        ("POST", "experiments", "experiments", "experiments", "execute"),
        ("POST", "experiments/3/continue", "experiments/3/continue", "experiments", "execute"),
        ("POST", "experiments/3/pause", "experiments/3/pause", "experiments", "write"),
        ("POST", "master/stop", "master/stop", "cluster", "execute"),
        ("GET", "trials/3/logs", "trials/3/logs", "logs", "read"),
        ("PUT", "templates/a%20b%25", "templates/a%20b%25", "templates", "write"),
        ("PUT", "templates/ü", "templates/%C3%BC", "templates", "write"),
        ("GET", "templates/a?b", "templates/a%3Fb", "templates", "read"),
    ],
)
def test_a_request_is_passed_on_with_what_it_needs(
    method: str, path: str, passed: str, resource: str, action: str
) -> None:
    route, found = find_route(method, path)
    assert (found, route.resource, route.action) == (passed, resource, action)


@pytest.mark.parametrize(
    "path",
    ["", "/", "experiments/", "experiments/..", "experiments/%2E%2E", "experiments/a%2Fb/logs",
     "../v1/experiments", "agents/x/commands", "experiments/1/feed", "experiments/1/2/3"],
)  # fmt: skip
def test_other_paths_are_not(path: str) -> None:
    with pytest.raises(NotFound, match="pages cannot send this"):
        find_route("GET", path)
