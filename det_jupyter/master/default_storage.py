"""Where the checkpoints go of configurations that name a storage without a backend here."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from det_jupyter.config.storage_replaced import VARIABLE

logger = logging.getLogger(__name__)


def default_storage(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder that the master's environment names, "" if it names none."""
    given = environ.get(VARIABLE, "")
    folder = os.path.expanduser(given)
    if given and not os.path.isabs(folder):
        logger.error("%s: got %r, expected an absolute path; it is ignored", VARIABLE, given)
        return ""
    return os.path.normpath(folder) if given else ""
