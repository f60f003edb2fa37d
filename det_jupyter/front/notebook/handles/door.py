"""Brings the places of the page to life, whichever kernel showed them first."""

from __future__ import annotations

import functools
import logging
import threading
from queue import SimpleQueue

from det_jupyter.errors import DetError
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.experiments import live_view
from det_jupyter.front.notebook.handles.show import can_draw, front
from det_jupyter.view.forms.notebook_output import key_id

logger = logging.getLogger(__name__)


@functools.cache
def open_page_door() -> object | None:
    """Draw the experiments that the page has places for; the reader gets to them one by one.

    Returns:
        What has to be kept for as long as that is wanted, or None if nothing can be drawn.
    """
    if front() != "places" or not can_draw():
        return None
    from det_jupyter.front.notebook.handles.widget import DoorWidget

    wanted: SimpleQueue[str] = SimpleQueue()
    # One thread, so that no experiment gets two views; the kernel is not kept from its cells.
    threading.Thread(target=_enliven_all, args=(wanted,), name="det-door", daemon=True).start()
    return DoorWidget(wanted.put)


def _enliven_all(wanted: SimpleQueue[str]) -> None:
    while True:
        key = wanted.get()
        try:
            connection.client()  # waits for the master
            live_view(key_id(key)).enliven(key)
        except DetError as error:  # such as an experiment of another master; its card stays
            logger.info("place %s is not brought to life: %s", key, error)
        except Exception:  # the boundary of the thread
            logger.exception("bringing place %s to life", key)
