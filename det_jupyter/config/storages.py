"""The `checkpoint_storage` section: one class for each kind of storage, selected by `type`.

Configurations are stored and shown, so no section has credentials: a key of Determined for some is
refused, with where they are looked for.

A folder can replace a storage that this version cannot write to, so that a file with hdfs runs
unchanged:

    --checkpoint-storage FOLDER                     of a submission: `with_storage`
    DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER           of the master: `with_default_storage`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.config.merging import merge
from det_jupyter.contract.schema.fields import AbsolutePath, Count, Ignored, Section, Text
from det_jupyter.contract.schema.key_paths import look_up, section
from det_jupyter.contract.values.bucket_urls import AZURE_HOSTS
from det_jupyter.contract.values.reserved_hosts import names_reserved

VARIABLE = "DET_JUPYTER_CHECKPOINT_STORAGE"
UNWRITABLE = ("hdfs",)
WAYS_OUT = (
    f"submit it with --checkpoint-storage FOLDER, start the master with {VARIABLE}=FOLDER, or "
    "write {type: directory, container_path: FOLDER}"
)


def _storage_path(value: str) -> str:
    if ".." in value.split("/"):
        raise PydanticCustomError("storage_path", "expected a path without ..")
    return value


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError("bucket", "{reason}", {"reason": f"expected {what}"})


def _no_secret(instead: str) -> BeforeValidator:
    def refuse(value: Any) -> Any:
        if value is not None:
            raise _expected(f"none, as configurations are stored; {instead}")
        return value

    return BeforeValidator(refuse)


def _bucket(value: str) -> str:
    if not value or not set(value) <= _NAME or value != value.strip("._-"):
        raise _expected("the name of a bucket, without a prefix or address, such as my-models")
    return value


def _prefix(value: str) -> str:
    inner = value.strip("/")
    is_one = not inner or {"", ".", ".."}.isdisjoint(inner.split("/"))
    if not is_one or set(value) & set("?#") or not value.isprintable():
        raise _expected("the beginning of names, such as team/models, without .., //, ? and #")
    return value


def _endpoint(value: str) -> str:
    try:
        url = urlsplit(value)
        is_one = value.startswith(("http://", "https://")) and url.hostname and (url.port or 1) > 0
    except ValueError:
        is_one, url = False, urlsplit("")
    is_one = is_one and value.isprintable() and " " not in value
    if not is_one or url.path.strip("/") or url.query or url.fragment or "@" in url.netloc:
        raise _expected("the address of a server, such as https://minio.example.org:9000")
    if names_reserved(url.hostname or ""):
        raise _expected("another address: this one has the metadata of a cloud's computer")
    return value


def _account_url(value: str) -> str:
    host = urlsplit(_endpoint(value)).netloc
    if not value.startswith("https://") or not host.endswith(AZURE_HOSTS):
        raise _expected("the address of an account, such as https://ACCOUNT.blob.core.windows.net")
    return value


_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_AWS_KEYS = (
    "they are read from ~/.aws/credentials, or from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
    "where the master and its agents are started"
)
_AZURE_KEYS = (
    "give account_url, and set AZURE_STORAGE_ACCOUNT_KEY (or another variable of Azure's) where "
    "the master and its agents are started"
)
Bucket = Annotated[Text, AfterValidator(_bucket)]
Prefix = Annotated[Text, AfterValidator(_prefix)]
_AwsKey = Annotated[Text | None, _no_secret(_AWS_KEYS)]
_AzureKey = Annotated[Text | None, _no_secret(_AZURE_KEYS)]


def _below(bucket: str, prefix: str | None) -> str:
    return f"{bucket}/{prefix.strip('/')}" if prefix and prefix.strip("/") else bucket


class Storage(Section):
    """The keys that all kinds of storage have."""

    save_experiment_best: Count = 0
    """Checkpoints of the best validations of the experiment that are kept."""
    save_trial_best: Count = 1
    """Checkpoints of the best validations of each trial that are kept."""
    save_trial_latest: Count = 1
    """Latest checkpoints of each trial that are kept."""

    @property
    def location(self) -> str | None:
        """The location of checkpoints; see `location_of`."""
        return self.locate(dict(self))  # model_dump would build a serializer: 9 ms in every rank

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str | None:
        """Return the location in a section of this kind; see `location_of`."""
        raise NotImplementedError


class SharedFs(Storage):
    """A folder that all computers see."""

    type: Literal["shared_fs"] = "shared_fs"
    """The kind of storage."""
    host_path: AbsolutePath | None = None
    """Folder that checkpoints go to; if not given, det_jupyter's own data folder."""
    storage_path: Annotated[Text, AfterValidator(_storage_path)] | None = None
    """Folder within host_path, relative or absolute."""
    propagation: Ignored = None
    container_path: Ignored = None
    checkpoint_path: Ignored = None
    tensorboard_path: Ignored = None

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str | None:
        """Return the folder within host_path; None if no host_path is given."""
        host_path: str | None = storage.get("host_path")
        storage_path: str | None = storage.get("storage_path")
        if storage_path is None or host_path is None:
            return host_path
        if storage_path.startswith("/"):
            return storage_path
        return f"{host_path.rstrip('/')}/{storage_path}"


class Directory(Storage):
    """A folder."""

    type: Literal["directory"]
    """The kind of storage."""
    container_path: AbsolutePath
    """Folder that checkpoints go to."""

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str | None:
        """Return the folder, whose key was host_path in our first version."""
        folder: str | None = storage.get("container_path", storage.get("host_path"))
        return folder


class S3(Storage):
    """A bucket of Amazon S3, or of another server that speaks its protocol."""

    type: Literal["s3"]
    """The kind of storage."""
    bucket: Bucket
    """Name of the bucket."""
    prefix: Prefix | None = None
    """What the names of all objects begin with."""
    endpoint_url: Annotated[Text, AfterValidator(_endpoint)] | None = None
    """Address of a server that is not Amazon's."""
    access_key: _AwsKey = None
    """Refused: configurations are stored. Keys are read from the environment or ~/.aws."""
    secret_key: _AwsKey = None
    """Refused, as access_key."""

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str:
        """Return the location in the bucket."""
        endpoint, bucket = storage.get("endpoint_url"), storage.get("bucket")
        first = f"s3+{endpoint.rstrip('/')}/{bucket}" if endpoint else f"s3://{bucket}"
        return _below(first, storage.get("prefix"))


class Gcs(Storage):
    """A bucket of Google Cloud Storage."""

    type: Literal["gcs"]
    """The kind of storage."""
    bucket: Bucket
    """Name of the bucket."""
    prefix: Prefix | None = None
    """What the names of all objects begin with."""

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str:
        """Return the location in the bucket."""
        return _below(f"gs://{storage.get('bucket')}", storage.get("prefix"))


class Azure(Storage):
    """A container of Azure Blob Storage."""

    type: Literal["azure"]
    """The kind of storage."""
    container: Bucket
    """Name of the container."""
    account_url: Annotated[Text, AfterValidator(_account_url)]
    """Address of the storage account."""
    connection_string: _AzureKey = None
    """Refused: configurations are stored. Keys are read from the environment."""
    credential: _AzureKey = None
    """Refused, as connection_string."""

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str:
        """Return the location of the container."""
        host = urlsplit(storage.get("account_url") or "").netloc
        return f"azure://{host}/{storage.get('container')}"


CheckpointStorage = Annotated[SharedFs | Directory | S3 | Gcs | Azure, Field(discriminator="type")]
_KINDS: tuple[type[Storage], ...] = get_args(get_args(CheckpointStorage)[0])
_BY_TYPE = {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in _KINDS}
# The keys of all kinds that determine the location.
LOCATING = tuple(
    dict.fromkeys(
        key
        for kind in _KINDS
        for key in kind.model_fields
        if key not in Storage.model_fields and key not in kind.ignored_keys()
    )
)


def location_of(storage: Mapping[str, Any]) -> str | None:
    """Return the location of checkpoints, from an effective `checkpoint_storage` section.

    The section may be that of a stored experiment of any version, so it is never refused: existing
    checkpoints must be found, and deleted.

    Returns:
        A folder, or that of a bucket (bucket_urls.py), as `storage.open_storage` takes it; None:
        det_jupyter's own folder.
    """
    return _BY_TYPE.get(storage.get("type", ""), SharedFs).locate(storage)


def with_storage(document: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return a configuration whose checkpoints go to a folder, whatever its template has.

    The numbers of checkpoints to keep are not changed. This function applies `--checkpoint-storage
    FOLDER`, before the document is parsed and sent.

    Args:
        document: What the user wrote.
        folder: An absolute path; `parse_config` refuses a relative one.
    """
    given = section(document, "checkpoint_storage")
    kept = {key: given[key] for key in Storage.model_fields if key in given}
    return {
        **document,
        "checkpoint_storage": {"type": "directory", "container_path": folder, **kept},
    }


def unwritable_storage(document: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """Return the kind of a configuration's storage if we cannot write to it, else ""."""
    storages = [{"checkpoint_storage": d.get("checkpoint_storage")} for d in (template, document)]
    kind = look_up(merge(*storages), "checkpoint_storage.type")
    return kind if kind in UNWRITABLE else ""


def with_default_storage(
    document: Mapping[str, Any], template: Mapping[str, Any], folder: str
) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration with the master's folder, if we cannot write to its storage.

    Also returns a notice about it, if so.

    Args:
        document: What the user wrote.
        template: The template that it is merged over; empty if there is none.
        folder: An absolute path; "": the master has none.
    """
    kind = unwritable_storage(document, template)
    if not folder or not kind:
        return dict(document), []
    notice = f"checkpoint_storage: {kind} has no backend here; checkpoints go to {folder}, as "
    return with_storage(document, folder), [f"{notice}the master's {VARIABLE} says."]
