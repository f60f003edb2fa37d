"""Kinds of storage, and fields of them, that this version checks and does not use."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import PydanticCustomError

from det_jupyter.config.fields import Section, Text
from det_jupyter.config.storages import Directory, SharedFs, Storage


def _prefix(value: str) -> str:
    if ".." in value.split("/"):
        raise PydanticCustomError("prefix", "expected a prefix without ..")
    return value


class Foreign(Section):
    """Base of sections that add ignored keys to a section of ours, which comes second.

    An ignored key that is not given is not in the effective document either: so a document has
    the same keys whatever else was ignored, and the readers of ours need not know of any.
    """

    @model_serializer(mode="wrap")
    def _without_absent(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        ours = type(self).__bases__[1]
        assert issubclass(ours, Section)
        document: dict[str, Any] = write(self)
        return {
            key: value
            for key, value in document.items()
            if value is not None or key in ours.model_fields
        }


class ForeignSharedFs(Foreign, SharedFs):
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
