"""The verb that previews a search: what the configuration in a file, or in a cell, would train."""

from __future__ import annotations

import time

from det_jupyter.client.asking import ask_for
from det_jupyter.client.drafts import located
from det_jupyter.config import read_yaml
from det_jupyter.errors import ConfigError
from det_jupyter.verbs.drafts import set_from_yaml
from det_jupyter.verbs.grammar import Call
from det_jupyter.verbs.preview import render_text
from det_jupyter.wire import PreviewRequest


def preview(call: Call) -> str:
    """Return what a search would train."""
    return set_from_yaml(call, lambda text: _preview(call, text), "%%det preview-search")


def _preview(call: Call, text: str) -> str:
    given, reading = call.options, read_yaml(text)
    if reading.problems:
        raise located(reading.problems, reading)
    request = ask_for(
        PreviewRequest,
        config=reading.document,
        template=given.template,
        seconds_per_batch=given.seconds_per_batch,
    )
    try:
        view = call.client.preview(request)
    except ConfigError as error:
        raise located(error.problems, reading) from None
    notes = [f"Note: {notice}" for notice in view.notices]
    return "\n".join([render_text(view, time.time()), *notes])
