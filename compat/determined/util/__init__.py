"""Small things that model code takes from `determined.util`."""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from determined._lacking import asked_of

_log = logging.getLogger(__name__)


def download_gcs_blob_with_backoff(blob: Any, n_retries: int = 32, max_backoff: int = 32) -> bytes:
    """Return the content of an object in Google's storage, asked for again while that fails.

    Args:
        blob: A `Blob` of google-cloud-storage, which your environment has to have; anything with
            `download_as_bytes` or `download_as_string`.
        n_retries: How often to ask.
        max_backoff: Longest pause between two attempts, in seconds.

    Raises:
        RuntimeError: The last attempt failed, too; its error is the cause.
    """
    download = getattr(blob, "download_as_bytes", None) or blob.download_as_string
    failure: Exception | None = None
    for attempt in range(n_retries):
        try:
            content: bytes = download()
            return content
        except Exception as error:  # of any library's: it is raised in the end
            failure = error
            pause_s = min(2**attempt + random.random(), max_backoff)
            _log.warning("download of %s: %s; again in %.1f s", blob, error, pause_s)
            if attempt + 1 < n_retries:
                time.sleep(pause_s)
    raise RuntimeError(f"download of {blob} failed {n_retries} times") from failure


def has_param(function: Callable[..., Any], name: str, position: int | None = None) -> bool:
    """Return whether a function has a parameter of this name, or one at this position."""
    parameters = list(inspect.signature(function).parameters)
    return name in parameters or (position is not None and len(parameters) > position)


def is_overridden(full_method: Any, parent_class: type) -> bool:
    """Return whether a bound method is not the one that the parent class defines."""
    return getattr(full_method, "__func__", full_method) is not getattr(
        parent_class, full_method.__name__
    )


__getattr__ = asked_of(__name__)
