"""A client whose documents have versions that a test gives."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any, cast

from det_jupyter.client import Client
from det_jupyter.view import ViewState, build_view_state
from tests.unit.view.view_samples import CREATED_AT

_TICK_S = 0.002


class FakeDocument:
    """A document as `FollowedDocument` is, until it is closed.

    Args:
        versions: What it yields; None is a tick without one, and an exception is raised.
        args: Its arguments, and those that it is changed to.
    """

    def __init__(self, versions: Sequence[Any] = (), **args: Any) -> None:
        self.args = [args]
        self.latest: Any = None
        self.is_closed = threading.Event()
        self._coming = deque(versions)

    def add(self, *versions: Any) -> None:
        """Let it have more versions; callable in any thread."""
        self._coming.extend(versions)

    def versions(self, tick_s: float) -> Generator[Any, None, None]:
        """Yield what was given and is added, and None in between."""
        while not self.is_closed.is_set():
            coming = self._coming.popleft() if self._coming else None
            if isinstance(coming, BaseException):
                raise coming
            if coming is None:
                self.is_closed.wait(min(tick_s, _TICK_S))
            else:
                self.latest = coming
            yield coming

    def fetch(self) -> Any:
        """Return the next version."""
        return next(one for one in self.versions(_TICK_S) if one is not None)

    def change_args(self, **args: Any) -> None:
        """Note other arguments."""
        self.args.append(args)

    def close(self) -> None:
        """End `versions`."""
        self.is_closed.set()


class FakeDocuments:
    """What a client needs to have documents; each time one is asked for, it begins anew.

    Attributes:
        versions: Those of each document, by its name.
        documents: Those that were asked for.
    """

    def __init__(self, **versions: Sequence[Any]) -> None:
        self.versions: Mapping[str, Sequence[Any]] = versions
        self.documents: list[FakeDocument] = []

    def document(self, name: str, **args: Any) -> FakeDocument:
        """Return a document of that name."""
        self.documents.append(FakeDocument(self.versions.get(name, ()), **args))
        return self.documents[-1]

    @property
    def watching(self) -> Client:
        """Itself."""
        return self.client

    @property
    def client(self) -> Client:
        """Itself, as the type that functions take."""
        return cast(Client, self)


def state_of(view: Any, *curves: Any, now: float = CREATED_AT + 42, **more: Any) -> ViewState:
    """Return the state of the view of an experiment, as the reader makes it."""
    return build_view_state(view, curves, [], now, **more)
