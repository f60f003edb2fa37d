"""Entry points by which Jupyter finds the extensions of Jupyter Server and of JupyterLab."""

from __future__ import annotations

from typing import Any


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "det-jupyter"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from det_jupyter.front.jupyter_server.application import DetJupyterApp

    return [{"module": "det_jupyter.front.jupyter_server.application", "app": DetJupyterApp}]
