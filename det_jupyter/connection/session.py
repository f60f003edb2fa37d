"""One program's line to the master: HTTP with the token, answers as JSON, refusals as our errors.

Knows nothing of experiments; `client` gives the answers their meaning.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import httpx

from det_jupyter import errors
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError, MasterUnreachable

API = "/api/v1"
_SUCCESSOR_S = 10.0
# Another one took over the port, or the master is leaving: it has not done what it was asked.
_ASK_NEXT = (httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE)
# The master answers in milliseconds; it may wait some seconds for its first agent at a submission.
TIMEOUT = httpx.Timeout(30.0, connect=2.0)


def must_be_awake(info: MasterInfo) -> None:
    """Refuse to wait for a master that was stopped (SIGSTOP): its port still takes requests.

    Raises:
        MasterUnreachable: It was; the message says what to do.
    """
    if info.process.is_frozen:
        command = f"kill -CONT {info.pid}"
        raise MasterUnreachable(
            f"the det_jupyter master (process {info.pid}) is stopped, and what trains goes on; "
            f"`{command}` lets it go on, or `kill -KILL {info.pid}` ends it and the next command "
            "starts another; then repeat this command",
            command=command,
        )


class Session:
    """A line to the master that finds it again after it moved.

    Args:
        info: Where the master is, and its token.
        locate: Called when there is no answer any more (the master was restarted); returns where
            it is now. None: do not look again.
        transport: For tests: an httpx transport instead of the network.
    """

    def __init__(
        self,
        info: MasterInfo,
        *,
        locate: Callable[[], MasterInfo] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._locate = locate
        self._transport = transport
        self._lock = threading.Lock()
        self._closers: list[weakref.finalize[..., Session]] = []
        self._connect(info)

    def _connect(self, info: MasterInfo) -> None:
        self.info = info
        self._http = httpx.Client(
            base_url=info.url + API,
            headers={"Authorization": f"Bearer {info.token}"},
            timeout=TIMEOUT,
            transport=self._transport,
            trust_env=False,  # no proxy on the loopback
            verify=False,  # plain HTTP: building an SSL context would take 20-50 ms
        )
        # A session that is dropped without close(), as notebooks do, leaves no open socket.
        self._closers.append(weakref.finalize(self, self._http.close))

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON answer to GET; None-valued parameters are left out."""
        return self._request("GET", path, params=_given(params), repeatable=True)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        """Return the JSON answer to POST.

        Args:
            repeatable: Asking twice is the same as once, so a request that may have been carried
                out by a master that died before it answered is made again.

        Raises:
            DetError: The class that the master's refusal names.
            MasterUnreachable: There is no answer.
        """
        return self._request("POST", path, json=body, repeatable=repeatable)

    def put(self, path: str, body: Any) -> Any:
        """Return the JSON answer to PUT, which may be asked twice."""
        return self._request("PUT", path, json=body, repeatable=True)

    def delete(self, path: str) -> Any:
        """Return the JSON answer to DELETE."""
        return self._request("DELETE", path, repeatable=False)

    def stream(self, path: str, **params: Any) -> Generator[Any, None, None]:
        """Yield the JSON lines of an endless answer; an empty line (heartbeat) yields None."""
        # A line at least every 15 s: silence for longer means that the other end is gone.
        timeout = httpx.Timeout(40.0, connect=2.0)
        try:
            with self._http.stream(
                "GET", path, params=_given(params), timeout=timeout
            ) as response:
                if response.is_error:
                    response.read()
                    raise _refusal(response)
                for line in _lines(response.iter_bytes()):
                    yield json.loads(line) if line else None
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def close(self) -> None:
        """Close the connections."""
        for close in self._closers:
            close()

    def _request(self, method: str, path: str, *, repeatable: bool, **kwargs: Any) -> Any:
        must_be_awake(self.info)
        asked = self.info
        try:
            response = self._http.request(method, path, **kwargs)
        except UnicodeEncodeError as error:
            part = error.object[max(0, error.start - 20) : error.end + 20]
            raise DetError(f"half a character cannot be sent: {part!a}; write it whole") from None
        except httpx.TransportError as error:
            must_be_awake(self.info)
            if isinstance(error, httpx.ReadTimeout):
                self.relocate()
                if self.info == asked:  # it would be as silent the second time
                    raise self._unreachable(error) from None
            if not (repeatable or _is_unasked(error)):
                raise self._unreachable(error, may_be_done=True) from None
            if self._locate is None:
                raise self._unreachable(error) from None
            response = self._ask_successor(method, path, repeatable=repeatable, **kwargs)
        if response.status_code in _ASK_NEXT and self._locate is not None:
            response = self._ask_successor(method, path, repeatable=repeatable, **kwargs)
        if response.is_error:
            raise _refusal(response)
        return response.json()

    def _ask_successor(
        self, method: str, path: str, *, repeatable: bool, **kwargs: Any
    ) -> httpx.Response:
        """Ask the present master; one that has just died may look alive for a moment."""
        deadline = time.monotonic() + _SUCCESSOR_S
        while True:
            self.relocate()
            try:
                response = self._http.request(method, path, **kwargs)
                if response.status_code not in _ASK_NEXT or time.monotonic() > deadline:
                    return response
            except httpx.TransportError as error:
                if not (repeatable or _is_unasked(error)) or time.monotonic() > deadline:
                    raise self._unreachable(error) from None
            time.sleep(0.05)

    def relocate(self) -> None:
        """Look for the master again and talk to the one that is there now."""
        if self._locate is None:
            return
        with self._lock:
            info = self._locate()
            if info != self.info:  # else another thread was here first
                self._connect(info)  # the old one stays open: others may be using it

    def _unreachable(self, error: Exception, *, may_be_done: bool = False) -> MasterUnreachable:
        advice = "see `python -m det_jupyter.master status`"
        if may_be_done:
            advice = "what was asked may be done or not: look, and ask again if it is not"
        if isinstance(error, httpx.ReadTimeout):
            pid = self.info.pid
            advice = (
                f"`kill -KILL {pid}` ends it, what trains goes on, and the next command starts "
                "another; then repeat this command"
            )
        return MasterUnreachable(
            f"the det_jupyter master at {self.info.url} does not answer ({error}); {advice}"
        )


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Not httpx's `iter_lines`: it ends lines at U+2028 too, which JSON strings may hold."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from lines


def _is_unasked(error: httpx.TransportError) -> bool:
    """Return whether the request was not sent at all."""
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value is not None}


def _refusal(response: httpx.Response) -> DetError:
    """Return the error that a refusal names, as if it had been raised here."""
    try:
        body = response.json()
        name, problems = body["error"], [errors.Problem(**each) for each in body["problems"]]
    except (ValueError, KeyError, TypeError):
        return DetError(f"the master answered {response.status_code}: {response.text[:200]}")
    kind = getattr(errors, name, DetError)
    if kind is errors.ConfigError:
        return errors.ConfigError(problems)
    texts = list(map(str, problems))
    if kind is errors.CaptureError:
        return errors.CaptureError(texts)
    if kind is errors.NotFound:
        what, number = body.get("what", ""), body.get("number", 0)
        return errors.NotFound("\n".join(texts), what=what, number=number)
    if not (isinstance(kind, type) and issubclass(kind, DetError)):
        kind = DetError
    return kind("\n".join(texts))
