"""Where Jupyter finds the two extensions: the server's and JupyterLab's."""

from __future__ import annotations

from typing import Any


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "det-jupyter"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from det_jupyter.front.jupyter_server.extension import DetJupyterApp

    return [{"module": "det_jupyter.front.jupyter_server.extension", "app": DetJupyterApp}]
