"""A server that speaks S3 (moto) or Google's XML, in this process; it can be made to fail."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "models"
_SIGNED = "AWS4-HMAC-SHA256 Credential=KEY/20261130/us-east-1/s3/aws4_request"  # is not checked
Server = TypeVar("Server", bound="BucketServer")


def error(code: str, status: str, **more: str) -> Answer:
    """Return an answer of S3 with an error."""
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in more.items())
    body = f"<Error><Code>{code}</Code><Message>it is so</Message>{inner}</Error>"
    return Answer(status, body.encode())


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered instead."""

    status: str
    body: bytes = b""


@dataclass
class BucketServer:
    """The server.

    Attributes:
        url: Its address.
        fail: Called with method and path of each request; returns what to answer instead.
        change: Called with method, path and content of each answer; returns another content. The
            length that is announced stays.
        requests: Method and path of all requests.
    """

    url: str = ""
    fail: Callable[[str, str], Answer | None] = lambda method, path: None
    change: Callable[[str, str, bytes], bytes] = lambda method, path, content: content
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)

    def heal(self) -> None:
        """Fail no more."""
        self.fail = lambda method, path: None
        self.change = lambda method, path, content: content

    @property
    def location(self) -> str:
        """The location of the bucket."""
        return f"s3+{self.url}/{BUCKET}"

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        path = environ["PATH_INFO"]
        if environ.get("QUERY_STRING"):
            path += "?" + environ["QUERY_STRING"]
        self.requests.append((method, path))
        length = int(environ.get("CONTENT_LENGTH") or 0)
        given = environ["wsgi.input"].read(length)
        answer = self.fail(method, path) or self.refuse(environ)
        if answer is not None:
            start_response(answer.status, [("Content-Length", str(len(answer.body)))])
            return [answer.body]
        if len(given) < length:  # S3 stores no part of a request that breaks; moto does
            start_response("400 Bad Request", [("Content-Length", "0")])
            return [b""]
        environ["wsgi.input"] = io.BytesIO(given)
        content = b"".join(self._app(environ, start_response))
        return [self.change(method, path, content)]

    def refuse(self, environ: Any) -> Answer | None:
        """Return what this kind of server answers instead; adapts the request."""
        return None

    def objects(self) -> dict[str, bytes]:
        """Return what is in the bucket."""
        found = {}
        for name, key in sorted(_backend().buckets[BUCKET].keys.items()):
            with suppress(ValueError):  # it is deleted meanwhile
                found[name] = key.value
        return found

    def replace(self, name: str, content: bytes | None) -> None:
        """Replace the content of an object; None: remove it."""
        if content is None:
            _backend().delete_object(BUCKET, name)
        else:
            _backend().put_object(BUCKET, name, content)

    def num_uploads(self) -> int:
        """Return how many uploads in parts are not complete."""
        return len(_backend().buckets[BUCKET].multiparts)

    def clear(self) -> None:
        """Make a new bucket that is empty."""
        _backend().reset()
        _backend().create_bucket(BUCKET, "us-east-1")
        self.requests.clear()


class GoogleServer(BucketServer):
    """The server, with what Google's XML protocol does in another way than that of S3."""

    token = "ya29.EXAMPLE-TOKEN"

    @property
    def location(self) -> str:
        """The location of the bucket."""
        return f"gs://{BUCKET}"

    def refuse(self, environ: Any) -> Answer | None:
        """Take a token instead of a signature, and delete only what is there."""
        if environ.get("HTTP_AUTHORIZATION") != f"Bearer {self.token}":
            return error("AuthenticationRequired", "401 Unauthorized")
        environ["HTTP_AUTHORIZATION"] = _SIGNED
        if environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH") == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        name = environ["PATH_INFO"].encode("latin-1").decode().removeprefix(f"/{BUCKET}/")
        is_deletion = environ["REQUEST_METHOD"] == "DELETE" and not environ.get("QUERY_STRING")
        if is_deletion and name not in self.objects():
            return error("NoSuchKey", "404 Not Found")
        return None


class _Lines(io.BufferedReader):
    """What comes by a connection, and the last line of it that was read."""

    last = b""

    def readline(self, size: int | None = -1, /) -> bytes:
        self.last = super().readline(-1 if size is None else size)
        return self.last


class _WholeRequests(WSGIRequestHandler):
    """Drops a request whose headers have not all come, as S3 does.

    http.server takes the end of a connection for the end of the headers, and a PUT without a
    length makes an empty object.
    """

    def setup(self) -> None:
        super().setup()
        self.rfile = _Lines(self.rfile.detach())

    def parse_request(self) -> bool:
        is_whole = super().parse_request() and self.rfile.last in (b"\r\n", b"\n")  # type: ignore[attr-defined]
        self.close_connection |= not is_whole
        return is_whole


def _backend() -> Any:
    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def serving() -> AbstractContextManager[BucketServer]:
    """Serve S3 until the end of the block."""
    return serving_as(BucketServer)


@contextmanager
def serving_as(kind: type[Server]) -> Iterator[Server]:
    """Serve until the end of the block."""
    server = kind()
    http = make_server("127.0.0.1", 0, server, threaded=True, request_handler=_WholeRequests)
    server.url = f"http://127.0.0.1:{http.port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        server.clear()
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
