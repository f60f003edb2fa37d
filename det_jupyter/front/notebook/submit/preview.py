"""What a search would train, before it is submitted: asked of the master, shown as a table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from det_jupyter.client.drafts import preview_draft
from det_jupyter.client.requests import make_request
from det_jupyter.config import parse_part
from det_jupyter.contract.messages import PreviewRequest, PreviewView
from det_jupyter.front.notebook.capture.capture import traps_of
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.cluster import Shown
from det_jupyter.front.notebook.submit.submitting import read_draft
from det_jupyter.front.verbs.preview import render_page, render_text


def preview(
    config: Mapping[str, Any] | str,
    *,
    template: str | None = None,
    seconds_per_batch: float | None = None,
) -> Shown[PreviewView]:
    """Return what a search would train: trials per rung, training in all, hours on these slots.

    Args:
        config: The configuration, or its YAML.
        template: Name of the template that it is laid over.
        seconds_per_batch: For the times; else what earlier trials of this class took.

    Raises:
        ConfigError: Everything that is wrong with the configuration.
        NotFound: There is no such template.
    """
    document = parse_part(config) if isinstance(config, str) else dict(config)
    request = make_request(
        PreviewRequest, config=document, template=template, seconds_per_batch=seconds_per_batch
    )
    return preview_shown(connection.client().preview(request), time.time())


def preview_cell(cell: str, options: argparse.Namespace, shell: Any) -> Shown[PreviewView]:
    """Return what the search in a cell would train; print what is probably not meant.

    Raises:
        ConfigError: Everything that is wrong with the configuration, with the cell's lines.
    """
    draft = read_draft(cell, options)
    view = preview_draft(connection.client(), draft, options.seconds_per_batch)
    entrypoint = str(draft.merged().get("entrypoint"))
    for notice in view.notices + traps_of(entrypoint, shell.user_ns, shell):
        print(f"Note: {notice}")
    return preview_shown(view, time.time())


def preview_shown(view: PreviewView, at: float) -> Shown[PreviewView]:
    """Return a preview that shows itself as a table, in a notebook with a picture."""
    return Shown(view, partial(render_text, at=at), partial(render_page, at=at))
