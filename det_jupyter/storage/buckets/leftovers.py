"""Aborts uploads in parts that a killed process has left in a bucket of S3.

Their parts take room and are seen in no list of objects. obstore has no call for that, so the
requests are signed here (Signature Version 4), if keys are in the environment or in a file. Those
of a computer's role are not known here: then a lifecycle rule of the bucket has to remove them
(docs/storage.md). Azure removes its own after a week.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import urllib.request
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from det_jupyter.contract.values.bucket_urls import BucketUrl, parse_bucket_url
from det_jupyter.storage.buckets.opening import s3_config

_EMPTY = hashlib.sha256(b"").hexdigest()
_TIMEOUT_S = 20.0
_MOST_BYTES = 4 << 20


class Keys(NamedTuple):
    """What a request is signed with."""

    id: str
    secret: str
    token: str
    region: str


class Upload(NamedTuple):
    """An upload in parts that is not complete."""

    name: str  # of the object, below the location
    id: str
    begun_at: float


class PartUploads:
    """The uploads in parts to a location that are not complete. None, where keys are not known.

    The methods raise an OSError if the server refuses, or does not answer as a whole.

    Args:
        location: Location of the storage.
    """

    def __init__(self, location: str) -> None:
        url = parse_bucket_url(location)
        self._keys = _find_keys(url) if url.kind == "s3" else None
        region = self._keys.region if self._keys is not None else ""
        server = url.endpoint or os.environ.get("AWS_ENDPOINT_URL", "").rstrip("/")
        self._base = f"{server or f'https://s3.{region}.amazonaws.com'}/{url.bucket}"
        self._root = f"{url.prefix}/" if url.prefix else ""

    def find(self, prefix: str = "") -> list[Upload]:
        """Return those of objects whose names begin with a prefix."""
        if self._keys is None:
            return []
        query = {"uploads": "", "prefix": f"{self._root}{prefix}"}
        return [
            Upload(
                each["Key"].removeprefix(self._root), each["UploadId"], _time(each["Initiated"])
            )
            for each in _read(_request("GET", self._base, query, self._keys), "Upload")
        ]

    def parts(self, upload: Upload) -> tuple[int, float]:
        """Return the size of the parts that are there, and when the last one was written."""
        assert self._keys is not None  # it was found with them
        num_bytes, changed_at, last = 0, upload.begun_at, "0"
        while True:
            query = {"uploadId": upload.id, "part-number-marker": last}
            parts = _read(_request("GET", self._address(upload), query, self._keys), "Part")
            for part in parts:
                num_bytes += int(part["Size"])
                changed_at = max(changed_at, _time(part["LastModified"]))
            if not parts or parts[-1]["PartNumber"] == last:
                return num_bytes, changed_at
            last = parts[-1]["PartNumber"]

    def abort(self, upload: Upload) -> None:
        """Remove an upload and its parts."""
        assert self._keys is not None  # it was found with them
        _request("DELETE", self._address(upload), {"uploadId": upload.id}, self._keys)

    def _address(self, upload: Upload) -> str:
        return f"{self._base}/{quote(self._root + upload.name)}"


def abort_uploads(location: str, prefix: str, names: Collection[str] | None = None) -> None:
    """Abort the uploads of objects whose names begin with a prefix.

    Args:
        location: Location of the storage.
        prefix: The prefix.
        names: What follows it in the names of the objects; None: anything.

    Raises:
        OSError: The server refuses, or does not answer as a whole.
    """
    uploads = PartUploads(location)
    for upload in uploads.find(prefix):
        if names is None or upload.name.removeprefix(prefix) in names:
            uploads.abort(upload)


def _find_keys(url: BucketUrl) -> Keys | None:
    config = s3_config(url)
    key = os.environ.get("AWS_ACCESS_KEY_ID") or config.get("access_key_id")
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY") or config.get("secret_access_key")
    token = os.environ.get("AWS_SESSION_TOKEN") or config.get("session_token", "")
    return Keys(key, secret, token, config["region"]) if key and secret else None


def _read(content: bytes, tag: str) -> list[dict[str, str]]:
    """Return the texts in each element with a tag, by their own tags."""
    try:
        root = ElementTree.fromstring(content)  # of the user's own server
    except ElementTree.ParseError:
        raise OSError("the answer is no XML, or not all of it") from None
    space = root.tag[: root.tag.find("}") + 1]
    return [
        {inner.tag.removeprefix(space): inner.text or "" for inner in each}
        for each in root.iter(f"{space}{tag}")
    ]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _request(method: str, address: str, query: Mapping[str, str], keys: Keys) -> bytes:
    text = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items())
    )
    headers = signed(method, address, text, keys, datetime.now(UTC))
    request = urllib.request.Request(  # http or https
        f"{address}?{text}", method=method, headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read(_MOST_BYTES))
    except HTTPException as error:  # the connection has ended within the answer
        raise OSError(f"the answer is broken: {type(error).__name__}") from None


def signed(method: str, address: str, query: str, keys: Keys, now: datetime) -> dict[str, str]:
    """Return the headers that sign a request without content."""
    url = urlsplit(address)
    at = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": url.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": at}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    whole = "\n".join((method, url.path, query, lines, names, _EMPTY))
    scope = f"{at[:8]}/{keys.region}/s3/aws4_request"
    digest = hashlib.sha256(whole.encode()).hexdigest()
    key = f"AWS4{keys.secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}"):
        key = hmac.digest(key, part.encode(), "sha256")
    named = f"Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return headers | {"Authorization": f"AWS4-HMAC-SHA256 {named}"}
