"""Answers of a server that break do not look like an error of ours."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from det_jupyter.storage.buckets.leftovers import PartUploads
from det_jupyter.storage.buckets.opening import ask_region
from tests.bucket_keys import KEYS

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n"
BROKEN = {
    "no answer": b"",
    "within the status": b"HT",
    "within the headers": HEAD[:25],
    "within the content": HEAD + b"<ListMultipartUploadsResult><Upload><Key>team/a",
    "no XML": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
}


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """Answer one request, close the connection, and return the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(content)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_uploads_in_parts_are_not_known_when_the_answer_breaks(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with answering(content) as url, pytest.raises(OSError, match=r"answer|response"):
        PartUploads(f"s3+{url}/models").find()


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_region_is_not_known_when_the_answer_breaks(content: bytes) -> None:
    with answering(content) as url:
        assert ask_region(f"{url}/models") == ""
