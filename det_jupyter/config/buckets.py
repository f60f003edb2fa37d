"""Kinds of storage, and fields of them, that this version checks and does not use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.config.fields import Text
from det_jupyter.config.storages import Directory, SharedFs, Storage


def _prefix(value: str) -> str:
    if ".." in value.split("/"):
        raise PydanticCustomError("prefix", "expected a prefix without ..")
    return value


class ForeignSharedFs(SharedFs):
    """A folder that all computers see."""

    propagation: Text | None = None
    """How mounts below it spread."""
    container_path: Text | None = None
    """Where the container sees it."""
    checkpoint_path: Text | None = None
    """An old name of storage_path."""
    tensorboard_path: Text | None = None
    """Where logs for TensorBoard go."""


class S3(Storage):
    """A bucket of S3."""

    type: Literal["s3"]
    """The kind of storage."""
    bucket: Text
    """Name of the bucket."""
    access_key: Text | None = None
    """The key's name."""
    secret_key: Text | None = None
    """The key."""
    endpoint_url: Text | None = None
    """Address of a service that speaks S3."""
    prefix: Annotated[Text, AfterValidator(_prefix)] | None = None
    """What the names of all objects begin with."""


class Gcs(Storage):
    """A bucket of Google Cloud Storage."""

    type: Literal["gcs"]
    """The kind of storage."""
    bucket: Text
    """Name of the bucket."""
    prefix: Annotated[Text, AfterValidator(_prefix)] | None = None
    """What the names of all objects begin with."""


class Azure(Storage):
    """A container of Azure Blob Storage."""

    type: Literal["azure"]
    """The kind of storage."""
    container: Text
    """Name of the container."""
    connection_string: Text | None = None
    """Address and credential in one."""
    account_url: Text | None = None
    """Address of the account."""
    credential: Text | None = None
    """Its credential."""


AnyStorage = Annotated[ForeignSharedFs | Directory | S3 | Gcs | Azure, Field(discriminator="type")]
