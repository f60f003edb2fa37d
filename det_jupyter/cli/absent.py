"""Words of Determined's command that mean nothing here, and what to do instead."""

from __future__ import annotations

from det_jupyter.errors import Conflict, UsageError
from det_jupyter.verbs.grammar import Call

_PLACES = "there are no workspaces and no projects here: labels and names find experiments"
_TASKS = "JupyterLab and your terminal run beside the master, not on it"
ABSENT = {
    "workspace": _PLACES,
    "w": _PLACES,
    "project": _PLACES,
    "p": _PLACES,
    "user": "there is one user: you",
    "u": "there is one user: you",
    "notebook": _TASKS,
    "shell": _TASKS,
    "command": _TASKS,
    "cmd": _TASKS,
    "deploy": "`det master start` starts what is needed",
    "d": "`det master start` starts what is needed",
    "model": "there is no registry of models: `det checkpoint download` copies a checkpoint",
    "resources": "`det slots` shows who is on which slot",
    "res": "`det slots` shows who is on which slot",
}


def check_word(word: str) -> None:
    """Refuse a word of Determined's command that means nothing here.

    Raises:
        UsageError: It is one.
    """
    if word in ABSENT:
        raise UsageError(f"det: there is no `det {word}`: {ABSENT[word]}")


def move(call: Call) -> str:
    """Refuse to move an experiment to a workspace.

    Raises:
        Conflict: Always.
    """
    raise Conflict(
        f"{_PLACES}; `det job move ID --ahead-of ID` moves an experiment in the queue, "
        "`det experiment set pool ID POOL` to another pool"
    )
