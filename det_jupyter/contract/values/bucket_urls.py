"""Locations of checkpoints in a bucket of S3, Google or Azure, as texts.

    s3://BUCKET[/PREFIX]                        Amazon S3
    s3+https://HOST[:PORT]/BUCKET[/PREFIX]      another server that speaks S3; also s3+http
    gs://BUCKET[/PREFIX]                        Google Cloud Storage
    azure://ACCOUNT_HOST/CONTAINER[/PREFIX]     Azure Blob Storage

A checkpoint's path is such a location, followed by / and its uuid. It says all that is needed to
find it, but the credentials: these are never part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# What the host of an account ends with.
AZURE_HOSTS = tuple(
    f".blob.{cloud}"
    for cloud in ("core.windows.net", "core.usgovcloudapi.net", "core.chinacloudapi.cn")
)
_URL = re.compile(
    r"(?P<kind>s3(?:\+(?P<scheme>https?))?|gs|azure)://(?P<rest>[^?#]+)", re.ASCII | re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketUrl:
    """A parsed location.

    Args:
        kind: Kind of the service.
        endpoint: URL of the server; "": the service's own.
        bucket: Name of the bucket or container.
        prefix: What the names of all objects begin with, without a / at either end.
    """

    kind: Literal["s3", "gs", "azure"]
    endpoint: str = ""
    bucket: str
    prefix: str = ""


def is_in_bucket(location: str | None) -> bool:
    """Return whether a location, or the path of a checkpoint, is in a bucket.

    >>> is_in_bucket("s3://models/team"), is_in_bucket("/data"), is_in_bucket(None)
    (True, False, False)
    """
    return location is not None and _URL.match(location) is not None


def parse_bucket_url(location: str) -> BucketUrl:
    """Return the parts of a location.

    Raises:
        ValueError: It is none of a bucket, or has a name or password, which no message contains.

    >>> parse_bucket_url("s3+http://minio:9000/models/team/a")
    BucketUrl(kind='s3', endpoint='http://minio:9000', bucket='models', prefix='team/a')
    >>> parse_bucket_url("gs://models")
    BucketUrl(kind='gs', endpoint='', bucket='models', prefix='')
    """
    match = _URL.fullmatch(location)
    if match is None:
        raise ValueError("expected the location of a bucket, such as s3://BUCKET/PREFIX")
    kind, rest = match["kind"].partition("+")[0], match["rest"].strip("/")
    scheme = "https" if kind == "azure" else match["scheme"]
    host, _, rest = rest.partition("/") if scheme else ("", "", rest)
    bucket, _, prefix = rest.partition("/")
    if "@" in host + bucket:
        raise ValueError("expected the location of a bucket without a name and password")
    if not bucket:
        raise ValueError("expected the name of a bucket in its location")
    if kind == "azure" and not host.endswith(AZURE_HOSTS):
        raise ValueError("expected the account's azure://ACCOUNT.blob.core.windows.net/CONTAINER")
    endpoint = f"{scheme}://{host}" if scheme else ""
    return BucketUrl(kind=kind, endpoint=endpoint, bucket=bucket, prefix=prefix.strip("/"))  # type: ignore[arg-type]  # the pattern has these kinds only
