"""Asks what the search of a draft would train."""

from __future__ import annotations

from det_jupyter.client.asking import ask_for
from det_jupyter.client.client import Client
from det_jupyter.client.drafts import Draft
from det_jupyter.errors import ConfigError
from det_jupyter.wire import PreviewRequest, PreviewView


def preview_draft(client: Client, draft: Draft, seconds_per_batch: float | None) -> PreviewView:
    """Return what a search would train; nothing is submitted.

    Raises:
        ConfigError: Everything that is wrong with the configuration, with its lines.
    """
    _, problems = draft.parse(default_seed=0)
    if problems:
        raise draft.located(problems)
    request = ask_for(
        PreviewRequest,
        config=draft.document,
        template=draft.template_name,
        seconds_per_batch=seconds_per_batch,
    )
    try:
        return client.preview(request)
    except ConfigError as error:
        raise draft.located(error.problems) from None
