"""How a handler's failure says which experiment is at fault; what follows is in giving_up.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from det_jupyter.words import error_line


class HandlerFailed(Exception):
    """A handler raised half way; the state that it worked on is not to be used any more.

    Attributes:
        experiment_id: Of the experiment at fault, where that is not the one of the event itself.
    """

    def __init__(self, message: str, experiment_id: int | None = None) -> None:
        super().__init__(message)
        self.experiment_id = experiment_id


@contextmanager
def on_behalf_of(experiment_id: int) -> Iterator[None]:
    """Have what raises inside blamed on an experiment that the event need not be about.

    Raises:
        HandlerFailed: In the place of what was raised.
    """
    try:
        yield
    except HandlerFailed:
        raise
    except Exception as error:
        raise HandlerFailed(error_line(error), experiment_id) from error
