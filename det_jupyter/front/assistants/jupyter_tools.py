"""The same tools in Jupyter Server, for jupyter-server-mcp.

Its entry point `jupyter_server_mcp.tools` takes names of functions, `module:name`. Changes ask in
a dialog of JupyterLab, unless `DetJupyterApp.allowed_tools` has their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from det_jupyter.front.assistants import tool_calls
from det_jupyter.front.assistants.asking import require_yes
from det_jupyter.front.assistants.changes import question_of
from det_jupyter.front.assistants.tool_table import TOOLS, Tool

_PREFIX = "det_"  # tools of other packages are in the same list


def tools() -> list[str]:
    """Return the names of the functions."""
    return [f"{__name__}:{_PREFIX}{tool.name}" for tool in TOOLS]


def __getattr__(name: str) -> Callable[..., Any]:
    found = [tool for tool in TOOLS if f"{_PREFIX}{tool.name}" == name]
    if not found:
        raise AttributeError(name)
    return _function(found[0])


def _function(tool: Tool) -> Callable[..., Any]:
    async def run(**values: Any) -> str:
        if tool.effect:
            question = await asyncio.to_thread(question_of, tool, values)
            await require_yes(question, is_own=True)
        return await asyncio.to_thread(tool_calls.run, tool, values)

    run.__name__ = run.__qualname__ = f"{_PREFIX}{tool.name}"
    run.__doc__ = tool.description
    return tool_calls.with_parameters(run, tool_calls.parameters_of(tool), str)
