"""Opens a bucket with the credentials of the environment. Only in the process that transfers.

    s3      AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; else the profile AWS_PROFILE in
            ~/.aws/credentials and ~/.aws/config; else the role of the computer
    gs      GOOGLE_APPLICATION_CREDENTIALS, or what `gcloud auth application-default login` wrote;
            else the account of the computer
    azure   AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_SAS_TOKEN, or
            the AZURE_CLIENT_* of a service principal; else the identity of the computer

The files of AWS are read here, because obstore reads the environment only.
"""

from __future__ import annotations

import configparser
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from det_jupyter.contract.values.bucket_urls import BucketUrl, parse_bucket_url

_CLIENT: dict[str, Any] = {"timeout": "120s", "connect_timeout": "5s"}
_RETRIES: dict[str, Any] = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=2)},
}  # who calls tries again for longer
_REGION = "us-east-1"
_LOOKUP_S = 5.0


@cache
def open_bucket(location: str) -> Any:
    """Return obstore's store for a location; the names of its objects begin after the prefix."""
    url = parse_bucket_url(location)
    common: dict[str, Any] = {"prefix": url.prefix or None, "retry_config": _RETRIES}
    common["client_options"] = _CLIENT | {"allow_http": allows_http(url)}
    if url.kind == "gs":
        return GCSStore(url.bucket, **common)
    if url.kind == "azure":
        return AzureStore(url.bucket, **azure_config(url, os.environ), **common)
    return S3Store(url.bucket, **s3_config(url), **common)


def allows_http(url: BucketUrl) -> bool:
    """Return whether the server is named with http://, which has no encryption."""
    own = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL"}.get(url.kind, "")
    return (url.endpoint or os.environ.get(own, "")).startswith("http://")


def s3_config(url: BucketUrl) -> dict[str, Any]:
    """Return what obstore does not find in the environment: endpoint, region, keys of files."""
    profile = read_aws_profile(os.environ, Path.home())
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {"region": region or profile.get("region") or _find_region(url)}
    if url.endpoint:
        config["endpoint"] = url.endpoint
    if "AWS_ACCESS_KEY_ID" not in os.environ and "aws_access_key_id" in profile:
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        config |= {name.removeprefix("aws_"): profile[name] for name in names if name in profile}
    return config


def read_aws_profile(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the values of the user's profile in the files of AWS; empty if there are none."""
    name = environ.get("AWS_PROFILE", "default")
    places = [
        (environ.get("AWS_CONFIG_FILE", home / ".aws/config"), f"profile {name}"),
        (environ.get("AWS_CONFIG_FILE", home / ".aws/config"), name),
        (environ.get("AWS_SHARED_CREDENTIALS_FILE", home / ".aws/credentials"), name),
    ]
    found: dict[str, str] = {}
    for path, section in places:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        if parser.has_section(section):
            found |= parser.items(section)
    return found


def azure_config(url: BucketUrl, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the account, and its key if the environment has it in a connection string only."""
    host = urlsplit(url.endpoint).hostname or ""
    config = {"account_name": host.partition(".")[0], "endpoint": url.endpoint}
    parts = environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    given = dict(part.split("=", 1) for part in parts if "=" in part)
    is_of_account = given.get("AccountName") == config["account_name"]
    if is_of_account and "AccountKey" in given and "AZURE_STORAGE_ACCOUNT_KEY" not in environ:
        config["account_key"] = given["AccountKey"]
    return config


def _find_region(url: BucketUrl) -> str:
    """Return the region of a bucket of Amazon, which it tells everybody."""
    if url.endpoint or "AWS_ENDPOINT_URL" in os.environ:
        return _REGION
    return ask_region(f"https://s3.amazonaws.com/{url.bucket}") or _REGION


def ask_region(address: str) -> str:
    """Return the region that a server names for a bucket, "" if it names none."""
    request = urllib.request.Request(address, method="HEAD")  # http or https
    try:
        with urllib.request.urlopen(request, timeout=_LOOKUP_S) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:  # a redirect or refusal has it, too
        headers = error.headers
    except (OSError, HTTPException):
        return ""
    return str(headers.get("x-amz-bucket-region", ""))
