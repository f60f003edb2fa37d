"""Completion of our magics' lines and of the YAML below them, as IPython calls it.

A v2 matcher, because only these can suppress all other completions.
"""

from __future__ import annotations

import re
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

_OURS = re.compile(r"^(?:%%|\s*%)(?:det_experiment|det)(?=\s|$)", re.MULTILINE)


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
