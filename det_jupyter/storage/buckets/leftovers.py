"""Aborts uploads in parts that a killed process has left in a bucket of S3.

Their parts take room and are seen in no list of objects. obstore has no call for that, so the two
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


def abort_uploads(location: str, prefix: str, names: Collection[str] | None = None) -> int:
    """Abort the uploads of objects whose names begin with a prefix; return their number.

    Args:
        location: Location of the storage.
        prefix: The prefix.
        names: What follows it in the names of the objects; None: anything.

    Raises:
        OSError: The server does not answer, or refuses.
    """
    url = parse_bucket_url(location)
    keys = _find_keys(url) if url.kind == "s3" else None
    if keys is None:
        return 0
    server = url.endpoint or os.environ.get("AWS_ENDPOINT_URL", "").rstrip("/")
    base = f"{server or f'https://s3.{keys.region}.amazonaws.com'}/{url.bucket}"
    whole = f"{url.prefix}/{prefix}" if url.prefix else prefix
    found = [
        (name, upload)
        for name, upload in _read_uploads(
            _request("GET", base, {"uploads": "", "prefix": whole}, keys)
        )
        if names is None or name.removeprefix(whole) in names
    ]
    for name, upload in found:
        _request("DELETE", f"{base}/{quote(name)}", {"uploadId": upload}, keys)
    return len(found)


def _find_keys(url: BucketUrl) -> Keys | None:
    config = s3_config(url)
    key = os.environ.get("AWS_ACCESS_KEY_ID") or config.get("access_key_id")
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY") or config.get("secret_access_key")
    token = os.environ.get("AWS_SESSION_TOKEN") or config.get("session_token", "")
    return Keys(key, secret, token, config["region"]) if key and secret else None


def _read_uploads(content: bytes) -> list[tuple[str, str]]:
    """Return the names and ids of the uploads in an answer of ListMultipartUploads."""
    root = ElementTree.fromstring(content)  # of the user's own server
    space = root.tag[: root.tag.find("}") + 1]
    return [
        (each.findtext(f"{space}Key", ""), each.findtext(f"{space}UploadId", ""))
        for each in root.iter(f"{space}Upload")
    ]


def _request(method: str, address: str, query: Mapping[str, str], keys: Keys) -> bytes:
    text = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items())
    )
    headers = signed(method, address, text, keys, datetime.now(UTC))
    request = urllib.request.Request(  # http or https
        f"{address}?{text}", method=method, headers=headers
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return bytes(answer.read(_MOST_BYTES))


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
