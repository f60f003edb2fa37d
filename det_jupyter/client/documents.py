"""Follows documents of the reader (contract/messages/pages.py), as pages do.

    follow ──► document (the whole) ──► patch, patch ...    each is acknowledged once it is used

A lost connection, for example at a restart of the master, is opened again. Then the document is
requested with the version that was received last: the reader sends the changes since, or the whole
document. If the reader stays silent, the master is requested to replace it.
"""

from __future__ import annotations

import json
import logging
import select
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from socket import IPPROTO_TCP, TCP_NODELAY
from socket import create_connection as connect
from socket import socket as Socket
from typing import Any, cast
from urllib.parse import urlsplit

from jsonpatch import JsonPatchException, JsonPointerException
from websocket import (
    ABNF,
    WebSocket,
    WebSocketException,
    WebSocketTimeoutException,
    create_connection,
)

from det_jupyter import errors
from det_jupyter.connection import Session
from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.documents.patches import Document, apply_changes
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch

logger = logging.getLogger(__name__)

_CONNECT_S = 5.0  # for the reader to start and to answer
_SILENT_S = 60.0  # the reader sends a ping every 30 s
_AGAIN_S = 0.5
_LOST = (WebSocketException, OSError, MasterUnreachable)
_TIMEOUTS = (WebSocketTimeoutException, TimeoutError)


class FollowedDocument:
    """A document of the reader, and its versions.

    Args:
        session: The session with the master, which also finds the next master after a restart. The
            document is requested from that master's reader.
        name: The document.
        args: Its arguments.

    Attributes:
        latest: The newest version, None before the first. It is not changed later.
    """

    def __init__(self, session: Session, name: str, **args: Any) -> None:
        self._session = session
        self._name = name
        self._args = args
        self._heard_at = time.monotonic()  # used only in the thread of `versions`
        self._lock = threading.Lock()  # guards changes of the attributes below, and of `_args`
        self._socket: WebSocket | None = None
        self._number = 0  # of the request, in frames: another one for other arguments
        self._is_closed = False
        self._instance = ""  # of the reader that has sent `latest`
        self._version = 0
        self.latest: Document | None = None

    def versions(self, tick_s: float) -> Generator[Document | None, None, None]:
        """Yield each version once it comes, and None after each `tick_s` without one.

        The next version is requested when the iteration continues: a slow consumer gets fewer.

        Raises:
            NotFound: There is no such document, or it was deleted.
            ProtocolMismatch: The master is of another version.
            DetError: The reader cannot make the document.
        """
        self._heard_at = time.monotonic()
        while not self._is_closed:
            try:
                with self._connected() as socket:
                    yield from self._received(socket, tick_s)
            except _LOST as error:
                logger.debug("%s is followed again: %s", self._name, error)
                if not isinstance(error, _TIMEOUTS):  # this reader, or another one, has answered
                    self._heard_at = time.monotonic()
            if not self._is_closed:
                yield None
                time.sleep(min(tick_s, _AGAIN_S))
                self._find_master()
                self._end_silent_reader()

    def change_args(self, **args: Any) -> None:
        """Follow the document with other arguments from now on. Callable in any thread."""
        with self._lock:
            self._args, self._version = args, 0
            if self._socket is not None:
                self._follow_again(self._socket)

    def close(self) -> None:
        """End `versions`, also from another thread. Idempotent."""
        with self._lock:
            self._is_closed = True
            if self._socket is not None:
                with suppress(OSError):  # the reader has closed it
                    self._socket.abort()  # type: ignore[no-untyped-call]

    def fetch(self) -> Document:
        """Return the present version of the document.

        Raises:
            MasterUnreachable: The reader does not answer, or none lasts.
            DetError: See `versions`.
        """
        deadline = time.monotonic() + _SILENT_S
        with closing(self.versions(_AGAIN_S)) as versions:
            for document in versions:
                if document is not None:
                    return document
                if time.monotonic() > deadline:
                    break
                if self._socket is None and (problem := self._session.get("/reader")["problem"]):
                    raise MasterUnreachable(problem)
        raise MasterUnreachable(
            f"the reader of the det_jupyter master does not answer; see {paths.reader_log()}"
        )

    @contextmanager
    def _connected(self) -> Iterator[WebSocket]:
        info = self._session.info
        url = urlsplit(info.reader_url)
        socket = create_connection(
            f"ws://{url.netloc}/socket",
            header=[f"Authorization: Bearer {info.token}", "X-Det-May-Write: 0"],
            suppress_origin=True,
            timeout=_CONNECT_S,
            socket=_connect(url.hostname, url.port),
            skip_utf8_validation=True,  # it is Python: [m] 0.2 s per MB; `decode` validates too
        )
        try:
            with self._lock:
                self._socket = socket
            yield socket
        finally:
            with self._lock:
                self._socket = None
            socket.close(timeout=0)

    def _find_master(self) -> None:
        try:
            self._session.relocate()
        except MasterUnreachable as error:
            logger.debug("%s", error)

    def _end_silent_reader(self) -> None:
        if time.monotonic() - self._heard_at <= _SILENT_S:
            return
        self._heard_at = time.monotonic()
        with suppress(MasterUnreachable):
            self._session.post("/reader/end")

    def _received(self, socket: WebSocket, tick_s: float) -> Iterator[Document | None]:
        assert socket.sock is not None
        readable = select.poll()
        readable.register(socket.sock, select.POLLIN)
        while not self._is_closed:
            if not readable.poll(tick_s * 1000):
                if time.monotonic() - self._heard_at > _SILENT_S:
                    raise WebSocketTimeoutException("the reader does not answer")
                yield None
                continue
            opcode, message = socket.recv_data(control_frame=True)
            self._heard_at = time.monotonic()
            if opcode == ABNF.OPCODE_CLOSE:
                raise MasterUnreachable("the reader has ended")
            if opcode in (ABNF.OPCODE_TEXT, ABNF.OPCODE_BINARY):
                text = message.decode() if opcode == ABNF.OPCODE_TEXT else message
                yield from self._taken(socket, unpack(text))

    def _taken(self, socket: WebSocket, frame: Mapping[str, Any]) -> Iterator[Document]:
        """Handle a frame; if it makes a new version, yield and acknowledge this."""
        with self._lock:
            if frame["op"] == "hello":
                self._begin(socket, frame)
            is_own = frame.get("id") == self._number  # not of former arguments
            if not is_own or frame["op"] not in ("document", "patch", "error"):
                return
            if frame["op"] == "error":
                raise _error_of(frame)
            if not self._accept(frame):
                self._follow_again(socket)
                return
            document, number = self.latest, self._number
        assert document is not None
        yield document
        _send(socket, op="ack", id=number, version=frame["version"])

    def _begin(self, socket: WebSocket, hello: Mapping[str, Any]) -> None:
        if hello["protocol"] != PAGE_PROTOCOL:
            raise ProtocolMismatch(
                f"the running master is det_jupyter {hello['version']}; restart it, or this "
                "program, so that both have one version"
            )
        if hello["instance"] != self._instance:
            self._instance, self._version = hello["instance"], 0
        self._follow_again(socket)  # `change_args` may have followed before the hello

    def _accept(self, frame: Mapping[str, Any]) -> bool:
        """Make `latest` the version of the frame; return False if its patch does not fit."""
        data = frame["data"]
        try:
            is_whole = frame["op"] == "document" or self.latest is None
            self.latest = data if is_whole else apply_changes(cast(Document, self.latest), data)
        except (JsonPatchException, JsonPointerException):
            logger.warning("a patch of %s does not fit; it is fetched anew", self._name)
            self._version = 0
            return False
        self._version = frame["version"]
        return True

    def _follow(self, socket: WebSocket) -> None:
        self._number += 1
        request = {"op": "follow", "document": self._name, "args": self._args}
        _send(socket, **request, id=self._number, version=self._version)

    def _follow_again(self, socket: WebSocket) -> None:
        try:
            _send(socket, op="leave", id=self._number)
            self._follow(socket)
        except (WebSocketException, OSError):
            logger.debug("the connection is lost; the next one follows")


def _connect(host: str | None, port: int | None) -> Socket:
    """Connect, without the proxy in `http_proxy`, which websocket would use."""
    socket = connect((host, port), timeout=_CONNECT_S)
    socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return socket


def _send(socket: WebSocket, **frame: Any) -> None:
    socket.send(json.dumps(frame))


def _error_of(frame: Mapping[str, Any]) -> DetError:
    kind = getattr(errors, str(frame["kind"]), DetError)
    is_ours = isinstance(kind, type) and issubclass(kind, DetError)
    return kind(frame["error"]) if is_ours else DetError(frame["error"])
