"""Where the ranks of a trial are, for a page: each is asked through its kernel, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jupyter_core.utils import ensure_event_loop

from det_jupyter.client import Client, Trial
from det_jupyter.client.asking import ask_for
from det_jupyter.client.rank import Rank
from det_jupyter.errors import DetError
from det_jupyter.wire.states import Wire

_MOST_AT_ONCE = 32
_MAX_CHARACTERS = 20_000  # of one rank: a recursion can be thousands of frames deep


class StackQuestion(Wire):
    """Which trial, and which of its ranks; all if None."""

    trial_id: int
    rank: int | None = None


def stack_answer(
    client: Client, experiment_id: int, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stack of each rank, or in its `error` why it does not answer.

    Raises:
        Conflict: The trial does not run now.
    """
    asked = ask_for(StackQuestion, trial_id=question.get("trial_id"), rank=question.get("rank"))
    trial = Trial(client, asked.trial_id)
    ranks = [rank for rank in trial.ranks if asked.rank in (None, rank.view.rank)]
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(ranks) or 1)) as pool:
        return {"trial_id": trial.id, "stacks": list(pool.map(_stack_of, ranks))}


def _stack_of(rank: Rank) -> dict[str, Any]:
    said = {"rank": rank.view.rank, "stack": "", "error": ""}
    try:
        stack = rank.stack()
    except DetError as error:
        return {**said, "error": str(error)}
    finally:
        ensure_event_loop().close()  # jupyter_client's, of this thread
    return {**said, "stack": stack[-_MAX_CHARACTERS:]}
