"""`%load_ext det_jupyter`: registers the magics, and starts the master in the background.

Views that the open notebook has from an earlier kernel are brought to life (docs/decisions/0032).

Registers no hooks. By the time the first experiment is submitted, the master is up and has torch
loaded in its fork server, and what the cell needs is imported: the first one returns at once too
(docs/decisions/0003).
"""

from __future__ import annotations

import importlib
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from det_jupyter.contract.host.daemons import spawn_master
from det_jupyter.errors import DetError
from det_jupyter.front.notebook.magics import DetMagics

if TYPE_CHECKING:  # the user's kernel has IPython loaded; a plain import of this module has not
    from IPython.core.interactiveshell import InteractiveShell

_OURS = re.compile(r"^(?:%%|\s*%)(?:det_experiment|det)(?=\s|$)", re.MULTILINE)
# What the first submission, the first line and the first Tab need.
IMPORTED_LATER = ("submit.submitting", "complete.lines", "handles.widget")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%det_experiment` and `%%det_experiment`."""
    shell.register_magics(DetMagics)
    matchers = getattr(shell.Completer, "custom_matchers", None)
    if matchers is not None and match_det_experiment not in matchers:
        matchers.append(match_det_experiment)
    try:
        spawn_master()
    except (DetError, OSError) as error:  # the first experiment would report it again
        print(error)
    threading.Thread(target=_import_the_rest, name="det-import", daemon=True).start()


def _import_the_rest() -> None:
    """Import what the first submission needs, so that its cell returns at once."""
    for module in IMPORTED_LATER:
        with suppress(ImportError):  # such as of anywidget; what needs it reports that
            importlib.import_module(f"det_jupyter.front.notebook.{module}")
    from det_jupyter.front.notebook.handles.experiment_handles import open_page_door

    open_page_door()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the completion back; IPython itself keeps registered magics."""
    matchers = getattr(shell.Completer, "custom_matchers", [])
    if match_det_experiment in matchers:
        matchers.remove(match_det_experiment)


@context_matcher(identifier="det_jupyter.det_experiment")  # type: ignore[untyped-decorator]
def match_det_experiment(context: CompletionContext) -> dict[str, Any]:
    """Complete a line that is ours; leave every other line alone."""
    if not _OURS.search(context.full_text):
        return {"completions": []}
    from det_jupyter.front.notebook.complete.lines import find_words  # loads what verbs need

    line = context.line_with_cursor[: context.cursor_position]
    found = find_words(context.full_text.split("\n"), context.cursor_line, line)
    if found is None:
        return {"completions": []}
    words, typed = found
    # What is replaced is IPython's token, which ends after the last dash or dot of ours.
    lead = len(typed) - len(context.token) if typed.endswith(context.token) else 0
    completions = [
        SimpleCompletion(text=word[lead:], type="param")
        for word in words
        if word.startswith(typed)
    ]
    return {"completions": completions, "suppress": True}
