"""Tasks of asyncio that run together, and calls that may block for minutes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


async def run_all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently; if one raises, cancel the others, and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except* Exception as errors:  # the first one leaves its group
        raise errors.exceptions[0] from None


async def in_thread(function: Callable[[], Result]) -> Result:
    """Return the function's result, from a daemon thread of its own.

    For calls that may hang for minutes, such as those of the name service, of a network drive or
    of a device's driver: the threads of `asyncio.to_thread` are few, and a program waits for them
    when it exits.
    """
    outcome: Future[Result] = Future()

    def work() -> None:
        if not outcome.set_running_or_notify_cancel():
            return  # its caller was cancelled before this thread ran
        try:
            outcome.set_result(function())
        except BaseException as error:  # raised where the result is awaited
            outcome.set_exception(error)

    threading.Thread(target=work, name="may hang", daemon=True).start()
    return await asyncio.wrap_future(outcome)


class BlockingCalls(Generic[Key, Result]):
    """Calls by key, each in a thread of its own. One that hangs is not made a second time."""

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[Result]] = {}

    async def results(
        self, calls: Mapping[Key, Callable[[], Result]], limit_s: float
    ) -> dict[Key, Result]:
        """Make the calls that do not run yet; return the results that came within `limit_s`.

        Raises:
            Exception: That of the first call that raised.
        """
        for key, call in calls.items():
            if key not in self._running:
                self._running[key] = asyncio.create_task(in_thread(call))
        if self._running:
            await asyncio.wait(self._running.values(), timeout=limit_s)
        ended = {key: task for key, task in self._running.items() if task.done()}
        for key in ended:
            del self._running[key]
        return {key: task.result() for key, task in ended.items() if key in calls}
