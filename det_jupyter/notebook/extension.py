"""`%load_ext det_jupyter`: registers the magics, and lets the master start in the background.

Registers no hooks. By the time the first experiment is submitted, the master is up and has torch
loaded in its fork server, so the first cell returns at once too (docs/decisions/0003).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_jupyter.daemon import spawn_master
from det_jupyter.notebook.completion import match_det_experiment
from det_jupyter.notebook.magics import DetMagics

if TYPE_CHECKING:  # the user's kernel has IPython loaded; a plain import of this module has not
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%det_experiment` and `%%det_experiment`."""
    shell.register_magics(DetMagics)
    matchers = getattr(shell.Completer, "custom_matchers", None)
    if matchers is not None and match_det_experiment not in matchers:
        matchers.append(match_det_experiment)
    spawn_master()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the completion back; IPython itself keeps registered magics."""
    matchers = getattr(shell.Completer, "custom_matchers", [])
    if match_det_experiment in matchers:
        matchers.remove(match_det_experiment)
