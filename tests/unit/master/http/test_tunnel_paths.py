"""Only the bodies of tunnels are read without a limit of their size."""

from __future__ import annotations

import pytest

from det_jupyter.master.http.routes_tunnels import is_tunnel


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/agents/b/tunnels/x", True),
        ("/api/v1/agents/tunnels/tunnels/x", True),
        ("/api/v1/agents/b/probe", False),
        # An agent may be named so, and chooses the ids in its paths.
        ("/api/v1/agents/tunnels/probe", False),
        ("/api/v1/agents/b/runs/tunnels/files", False),
        ("/api/v1/agents/b/runs/1.1.1/checkpoints/tunnels/files", False),
    ],
)
def test_a_path_is_that_of_a_tunnel_only_at_its_place(path: str, expected: bool) -> None:
    assert is_tunnel(path) == expected
