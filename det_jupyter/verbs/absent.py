"""Words of Determined's command that mean nothing here, and what to do instead."""

from __future__ import annotations

_PLACES = "there are no workspaces and no projects here: labels and names find experiments"
_TASKS = "JupyterLab and your terminal run beside the master, not on it"
_USER = "there is one user: you"
_RESOURCES = "`%det slots` shows who is on which slot"

OF_DET = {
    "workspace": _PLACES,
    "w": _PLACES,
    "project": _PLACES,
    "p": _PLACES,
    "user": _USER,
    "u": _USER,
    "notebook": _TASKS,
    "shell": _TASKS,
    "command": _TASKS,
    "cmd": _TASKS,
    "deploy": "the master starts when something needs it, or by `det master start` in a shell",
    "d": "the master starts when something needs it, or by `det master start` in a shell",
    "model": "there is no registry of models: `%det checkpoint download` copies a checkpoint",
    "resources": _RESOURCES,
    "res": _RESOURCES,
}
OF_EXPERIMENTS = {
    "move": (
        f"{_PLACES}; `%det job move ID --ahead-of ID` moves an experiment in the queue, "
        "`%det experiment set pool ID POOL` to another pool"
    ),
}
# Verbs of a shell.
NOT_IN_NOTEBOOKS = {
    "master": "`!det master status` asks in a shell",
    "tensorboard": "`det_jupyter.experiment(ID).tensorboard()` does it in a notebook",
    "version": "`det_jupyter.__version__` has it",
}
NO_CREATE = {
    "create": (
        "put `%%det_experiment --context DIR` above the configuration in a cell, or call "
        '`det_jupyter.submit(None, "config.yaml", context="DIR")`'
    ),
}
