"""What the kernel answers: as live/answers.py, and the code that a widget begins without."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from det_jupyter.client import Client
from det_jupyter.live import answers
from det_jupyter.live.answers import Question
from det_jupyter.notebook.handles.show import STATIC_DIR


def tabs_answer(client: Client, experiment_id: int, question: Question) -> dict[str, Any]:
    """Return the code of the tabs that a view begins without."""
    return {"text": (STATIC_DIR / "tabs.js").read_text(encoding="utf-8")}


ANSWERERS = {**answers.ANSWERERS, "tabs": tabs_answer}


def answer_soon(
    client: Client, experiment_id: int, question: Question, send: Callable[[Any], None]
) -> None:
    """Send the answer from another thread: a search may take seconds, and cells should run."""
    threading.Thread(
        target=lambda: send(answers.answer(client, experiment_id, question, ANSWERERS)),
        name=f"det-answer-{experiment_id}",
        daemon=True,
    ).start()
