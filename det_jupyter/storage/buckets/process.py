"""Starts the process that transfers (`__main__.py`) when it is needed, and asks it.

The process is started anew, and not forked, because obstore hangs in forked processes. A request
that it has not answered when it ends is sent to another one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from det_jupyter.errors import BucketProblem

_ATTEMPTS = 3


class _Gone(Exception):
    """The process has ended before it has answered.

    Args:
        code: Exit code of the process.
    """

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class _Process:
    """A process that transfers, and the requests that it has not answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Apart from that of answers: a long request must not wait for answers that wait for it.
        self._writing = threading.Lock()
        self._open: dict[int, Future[dict[str, Any]]] = {}
        self._num = 0
        self.is_over = False
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __package__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what obstore writes may have credentials
            text=True,
            encoding="utf-8",
        )
        self._receiver = threading.Thread(target=self._receive, name="det-transfers", daemon=True)
        self._receiver.start()

    def send(self, request: dict[str, Any]) -> Future[dict[str, Any]]:
        """Send a request; its answer is the result of what is returned."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self.is_over:
                raise _Gone(self.process.returncode)
            self._num += 1
            number = self._num
            self._open[number] = future
        assert self.process.stdin is not None
        try:
            with self._writing:
                self.process.stdin.write(json.dumps({"id": number, **request}) + "\n")
                self.process.stdin.flush()
        except (OSError, ValueError):  # it is just ending
            raise _Gone(self.process.wait()) from None
        return future

    def close(self) -> None:
        """End the process; what it has not answered is not answered any more."""
        assert self.process.stdin is not None
        with self._writing, suppress(OSError):  # it has ended
            self.process.stdin.close()
        self._receiver.join()

    def _receive(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as answers:
            for line in answers:
                answer = json.loads(line)
                with self._lock:
                    future = self._open.pop(answer["id"])
                future.set_result(answer)
        self.process.wait()
        assert self.process.stdin is not None
        with self._lock:
            self.is_over = True
        with self._writing, suppress(OSError):
            self.process.stdin.close()
        for future in self._open.values():
            future.set_exception(_Gone(self.process.returncode))


class Transfers:
    """The process that transfers for this program. Threads may use it at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._inherited: _Process | None = None
        self._is_stopped = False

    def ask(self, call: str, location: str, uuid: str = "", **given: Any) -> Any:
        """Return the result of a request.

        Raises:
            BucketProblem: The bucket does not do it.
            OSError: This computer's disk fails.
        """
        request = {"call": call, "location": location, "uuid": uuid, "given": given}
        code: int | None = None
        for _ in range(_ATTEMPTS):
            try:
                answer = self._running(location).send(request).result()
            except _Gone as gone:
                code = gone.code
                continue
            if problem := answer.get("problem"):
                raise _error_of(problem)
            return answer["result"]
        raise BucketProblem(
            f"{location}: the process that transfers has ended {_ATTEMPTS} times, the last time "
            f"with {code}; see whether {sys.executable} can import obstore",
            "other",
        )

    @property
    def pid(self) -> int | None:
        """The pid of the process; None if it does not run."""
        found = self._process
        return None if found is None or found.is_over else found.process.pid

    def _running(self, location: str) -> _Process:
        with self._lock:
            if self._is_stopped:
                raise BucketProblem(f"{location} is not asked any more: this program ends", "away")
            if self._process is None or self._process.is_over:
                self._process = _Process()
            return self._process

    def close(self) -> None:
        """End the process, if it runs; the next request starts another one."""
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process = None

    def stop(self) -> None:
        """Let open and later requests fail, as this program ends: an answer may take minutes."""
        with self._lock:
            self._is_stopped = True
        self.close()

    def forget(self) -> None:
        """Begin without a process: it is that of the process that this one was forked from."""
        self._lock, self._is_stopped = threading.Lock(), False
        self._inherited, self._process = self._process, None  # kept open, as collecting it warns


def _error_of(problem: dict[str, Any]) -> Exception:
    if problem["kind"] == "disk":
        return OSError(problem["errno"], problem["text"], problem["file"] or None)
    return BucketProblem(problem["text"], problem["kind"])


transfers = Transfers()
os.register_at_fork(after_in_child=transfers.forget)
