"""Compares the environments of two computers between which captured code travels."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata


def installed_versions() -> dict[str, str]:
    """Return the versions of this interpreter and its torch; "" if it has none."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return {"python": platform.python_version(), "torch": torch}


def find_difference(agent_id: str, theirs: Mapping[str, str]) -> str:
    """Return why an agent's environment cannot run code captured here, and what to do.

    Pickled code needs the same minor version of Python. torch has to be of the same version,
    whichever devices it was built for: `2.13.0+cpu` and `2.13.0+cu130` are.

    Args:
        agent_id: The agent.
        theirs: Its versions, as of `installed_versions`.

    Returns:
        A sentence; "" if there is no such difference.
    """
    ours = installed_versions()
    python, torch = theirs.get("python", ""), theirs.get("torch", "")
    if _minor(python) != _minor(ours["python"]):
        return (
            f"agent {agent_id} has Python {python}, and this computer Python {ours['python']}; "
            f"start it there in an environment with Python {_minor(ours['python'])}"
        )
    if not torch or _release(torch) != _release(ours["torch"]):
        return (
            f"agent {agent_id} has {f'torch {torch}' if torch else 'no torch'}, and this computer "
            f"torch {ours['torch']}; run `python -m pip install torch=={_release(ours['torch'])}` "
            "there, and start the agent again"
        )
    return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _release(version: str) -> str:
    return version.partition("+")[0]
