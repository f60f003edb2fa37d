"""An entry of `trackers`: a service that gets an experiment's parameters, metrics and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from det_jupyter.contract.schema.fields import AbsolutePath, Section, Text, Title
from det_jupyter.contract.values.alerts import (
    file_of,
    has_secret,
    is_url,
    shown,
    stored_number,
    variable_of,
)
from det_jupyter.errors import Problem

TRACKERS: dict[str, tuple[str, ...]] = {  # type: the keys that only it has
    "mlflow": ("tracking_uri", "experiment"),
    "wandb": ("project", "entity", "mode", "folder", "api_key", "base_url"),
}


def _name(value: str) -> str:
    if "://" in value:  # names are shown
        raise PydanticCustomError("name", "expected a name; an address goes below tracking_uri")
    return value


def _refers(value: str) -> bool:
    return any(of(value) is not None for of in (variable_of, file_of, stored_number))


def _tracking_uri(value: Any) -> Any:
    if isinstance(value, str) and (_refers(value) or is_url(value) or is_database(value)):
        return value
    raise PydanticCustomError(
        "tracking_uri",
        "expected http(s)://..., sqlite:////PATH, ${NAME} or file:/PATH of a file that has it",
    )


def _api_key(value: Any) -> Any:
    if isinstance(value, str) and (variable_of(value) or file_of(value)):
        return value
    raise PydanticCustomError(
        "api_key",
        "expected ${NAME}, or file:/PATH of a file that has it: what is written here is stored "
        "and shown",
    )


def _base_url(value: str) -> str:
    if not is_url(value) or has_secret(value):
        raise PydanticCustomError("base_url", "expected https://HOST; the key goes below api_key")
    return value


def is_database(address: str) -> bool:
    """Return whether it is the address of an SQLite file, with an absolute path."""
    return address.startswith("sqlite:////") and len(address) > len("sqlite:////")


class Tracker(Section):
    """A service that gets parameters, metrics and results of each trial, and how it ends."""

    type: Literal["mlflow", "wandb"]
    """Which service."""
    name: Annotated[Title, AfterValidator(_name)] | None = None
    """A name of your own, to choose it by."""
    tracking_uri: Annotated[str, BeforeValidator(_tracking_uri)] | None = None
    """mlflow: the server, `http://HOST:PORT`; by default `${MLFLOW_TRACKING_URI}`."""
    experiment: Title | None = None
    """mlflow: the experiment there, made if it is absent; by default `det_jupyter`."""
    project: Title | None = None
    """wandb: the project; by default `det_jupyter`."""
    entity: Text | None = None
    """wandb: the user or team; by default that of the key."""
    mode: Literal["online", "offline"] | None = None
    """wandb: send to the server (the default), or write files that `wandb sync` sends."""
    folder: AbsolutePath | None = None
    """wandb, offline: where the files go; by default into the data folder."""
    api_key: Annotated[str, BeforeValidator(_api_key)] | None = None
    """wandb, online: `${NAME}` or `file:/PATH`; by default `${WANDB_API_KEY}`, or the login's."""
    base_url: Annotated[Text, AfterValidator(_base_url)] | None = None
    """wandb, online: the server; by default `https://api.wandb.ai`."""

    @property
    def is_offline(self) -> bool:
        """Whether files are written instead of requests to a server."""
        return self.mode == "offline"

    @property
    def group(self) -> str:
        """The experiment of MLflow or the project of W&B that gets the runs."""
        return self.experiment or self.project or "det_jupyter"

    @property
    def references(self) -> dict[str, str]:
        """Its values that may be, or refer to, a secret, by key."""
        if self.type == "mlflow":
            return {"tracking_uri": self.tracking_uri or "${MLFLOW_TRACKING_URI}"}
        return {} if self.is_offline else {"api_key": self.api_key or "${WANDB_API_KEY}"}

    @property
    def label(self) -> str:
        """How it is named in sentences: by its name, or by its type and place, without secrets."""
        if self.name:
            return self.name
        if self.type == "mlflow":
            return f"mlflow {open_address(self.references['tracking_uri'])}"
        return f"wandb {self.group}{' (offline)' if self.is_offline else ''}"


def open_address(address: str) -> str:
    """Return a tracking_uri as it may be shown: without what is secret.

    >>> open_address("http://localhost:5000"), open_address("https://ann:x@mlflow.example.org/a")
    ('http://localhost:5000', 'https://mlflow.example.org/********')
    """
    is_open = is_database(address) or (is_url(address) and not has_secret(address))
    return address if is_open else shown(address)


def find_foreign_keys(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each key of a tracker that belongs to another type."""
    trackers = document.get("trackers")
    for index, entry in enumerate(trackers if isinstance(trackers, list) else ()):
        kind = entry.get("type") if isinstance(entry, Mapping) else None
        for other, keys in TRACKERS.items():
            for key in keys if isinstance(kind, str) and kind in TRACKERS else ():
                if other != kind and key in entry:
                    text = f"{kind} does not have it; {other} has"
                    yield Problem(f"trackers[{index}].{key}", text)
