"""What to say of a number that is none: which there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from det_jupyter.errors import NotFound
from det_jupyter.notebook.handles import handles

_MOST = 5


@contextmanager
def telling_what_there_is() -> Iterator[None]:
    """Add to a NotFound of an experiment or trial those that there are."""
    try:
        yield
    except NotFound as error:
        hint = _hint(str(error))
        raise NotFound(f"{str(error).partition(';')[0]}; {hint}" if hint else str(error)) from None


def _hint(problem: str) -> str:
    if problem.startswith("there is no trial"):
        return "%det task list shows those that run or wait, %det_experiment trials ID all"
    if not problem.startswith("there is no experiment"):
        return ""
    numbers = [str(view.id) for view in handles.client().experiments()]
    if not numbers:
        return "there are none yet"
    front = "there are: " if len(numbers) <= _MOST else "the newest are: "
    return front + ", ".join(numbers[-_MOST:])
