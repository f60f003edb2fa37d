"""`%load_ext det_jupyter`: registers magics and completion, and starts the master in background.

Views that an earlier kernel left in the open notebook become live again (docs/decisions/0032).

No hooks are registered. The master loads torch in its fork server, and a thread imports modules,
so that already the first submission returns quickly (docs/decisions/0003).
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
# Modules that the first submission, the first line and the first Tab need.
IMPORTED_LATER = ("submit.submitting", "complete.lines", "handles.widget")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics and their completion, and start the master."""
    shell.register_magics(DetMagics)
    matchers = getattr(shell.Completer, "custom_matchers", None)
    if matchers is not None and match_det_experiment not in matchers:
        matchers.append(match_det_experiment)
    try:
        spawn_master()
    except (DetError, OSError) as error:  # reported again by the first submission
        print(error)
    threading.Thread(target=_import_the_rest, name="det-import", daemon=True).start()


def _import_the_rest() -> None:
    """Import modules that are slow to import, and make views of earlier kernels live."""
    for module in IMPORTED_LATER:
        with suppress(ImportError):  # such as of anywidget; reported where it is needed
            importlib.import_module(f"det_jupyter.front.notebook.{module}")
    from det_jupyter.front.notebook.handles.experiment_handles import enliven_page

    enliven_page()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unregister the completion; IPython keeps registered magics."""
    matchers = getattr(shell.Completer, "custom_matchers", [])
    if match_det_experiment in matchers:
        matchers.remove(match_det_experiment)


@context_matcher(identifier="det_jupyter.det_experiment")  # type: ignore[untyped-decorator]
def match_det_experiment(context: CompletionContext) -> dict[str, Any]:
    """Complete a line of our magics, or of the YAML below them, for IPython; ignore others.

    A v2 matcher, as only these can suppress all other completions.
    """
    if not _OURS.search(context.full_text):
        return {"completions": []}
    from det_jupyter.front.notebook.complete.lines import find_words  # slow to import

    line = context.line_with_cursor[: context.cursor_position]
    found = find_words(context.full_text.split("\n"), context.cursor_line, line)
    if found is None:
        return {"completions": []}
    words, typed = found
    # IPython replaces its own token, which begins after the last dash or dot in `typed`.
    lead = len(typed) - len(context.token) if typed.endswith(context.token) else 0
    completions = [
        SimpleCompletion(text=word[lead:], type="param")
        for word in words
        if word.startswith(typed)
    ]
    return {"completions": completions, "suppress": True}
