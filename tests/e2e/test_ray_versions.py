"""What the bridge says of a cluster that it cannot use; a server answers as Ray's head."""

from __future__ import annotations

import importlib.util
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import BridgeReport
from det_jupyter.contract.schema.clusters import ClusterConfig

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
TOKEN = "0123456789abcdef" * 2
HERE = platform.python_version()


class Head:
    """The part of a head's control store that the bridge asks before it connects."""

    def __init__(self) -> None:
        self.versions = {"ray_version": "2.60.0", "python_version": HERE}
        self.port = 0

    def services(self, grpc: Any) -> Iterator[Any]:
        answers = {
            ("NodeInfoGcsService", "GetClusterId"): lambda: b"\1" * 28,
            ("InternalKVGcsService", "InternalKVGet"): lambda: json.dumps(self.versions).encode(),
        }
        for (service, method), answer in answers.items():

            def handle(_: bytes, context: Any, answer: Any = answer) -> bytes:
                if f"Bearer {TOKEN}" not in dict(context.invocation_metadata()).values():
                    text = "InvalidAuthToken: Authentication token is missing or incorrect"
                    context.abort(grpc.StatusCode.UNAUTHENTICATED, text)
                value: bytes = answer()
                return b"\x12" + bytes([len(value)]) + value  # field 2 of Ray's replies

            handler = grpc.unary_unary_rpc_method_handler(handle)
            yield grpc.method_handlers_generic_handler(f"ray.rpc.{service}", {method: handler})


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    grpc = pytest.importorskip("grpc")
    head = Head()
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=list(head.services(grpc)))
        head.port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield head
        server.stop(None).wait()


def problem_of(head: Head, folder: Path) -> str:
    """Return what the bridge reports instead of connecting."""
    (folder / "token").write_text(TOKEN)
    config = ClusterConfig(
        engine="ray", address=f"127.0.0.1:{head.port}", token_file=str(folder / "token")
    )
    command = [sys.executable, "-m", "det_jupyter.engine.ray", config.model_dump_json(), "m1"]
    done = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True)
    assert done.returncode == 1, done.stderr
    return BridgeReport.model_validate_json(done.stdout).problem


def test_another_version_is_refused_with_the_lines_to_type(head: Head, tmp_path: Path) -> None:
    head.versions = {"ray_version": "2.40.0", "python_version": "3.9.18"}
    problem = problem_of(head, tmp_path)
    assert f"runs Ray 2.40.0 with Python 3.9.18, and {sys.executable} has Ray" in problem
    assert "make an environment with Python 3.9 and `pip install ray==2.40.0 " in problem
    assert problem.endswith("--bridge-python FILE")
