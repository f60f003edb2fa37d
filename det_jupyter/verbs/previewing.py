"""The verb that previews a search: what the configuration in a file, or in a cell, would train."""

from __future__ import annotations

import time

from det_jupyter.client.creating import read_draft
from det_jupyter.client.previewing import preview_draft
from det_jupyter.verbs.drafts import set_from_yaml
from det_jupyter.verbs.grammar import Call
from det_jupyter.verbs.preview import render_text


def preview(call: Call) -> str:
    """Return what a search would train."""
    return set_from_yaml(call, lambda text: _preview(call, text), "%%det preview-search")


def _preview(call: Call, text: str) -> str:
    draft = read_draft(call.client, text, call.options.template)
    view = preview_draft(call.client, draft, call.options.seconds_per_batch)
    notes = [f"Note: {notice}" for notice in view.notices]
    return "\n".join([render_text(view, time.time()), *notes])
