"""An entry of `trackers`: a service that gets an experiment's parameters, metrics and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from det_jupyter.contract.schema.fields import AbsolutePath, Section, Text, Title
from det_jupyter.contract.values.addresses import is_place_only, is_reference, is_url, shown
from det_jupyter.errors import Problem

TRACKERS: dict[str, tuple[str, ...]] = {  # type: the keys that only it has
    "mlflow": ("tracking_uri", "experiment"),
    "wandb": ("project", "entity", "mode", "folder"),
}
MLFLOW_ADDRESS = "MLFLOW_TRACKING_URI"  # variables that MLflow's library reads
MLFLOW_CREDENTIALS = (
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
)
OF_USER = (  # variables by which libraries of trackers find credentials
    *MLFLOW_CREDENTIALS,
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_TRACKING_AWS_SIGV4",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "NETRC",
)
EXPECTED_URI = "http(s)://HOST:PORT/PATH (without ?...) or sqlite:////PATH"
_FILES_ONLY = "this version writes files, which `wandb sync` sends"


def _name(value: str) -> str:
    if "://" in value:  # names are shown
        raise PydanticCustomError("name", "expected a name; an address goes below tracking_uri")
    return value


def _tracking_uri(value: Any) -> Any:
    if isinstance(value, str) and is_reference(value):
        return value
    if isinstance(value, str) and is_tracking_uri(value):
        return value.rstrip("/")
    raise PydanticCustomError(
        "tracking_uri",
        f"expected {EXPECTED_URI}, ${{NAME}} or file:/PATH of a file that has it",
    )


def _mode(value: Any) -> Any:
    if value == "offline":
        return value
    raise PydanticCustomError("mode", "{reason}", {"reason": f"expected offline: {_FILES_ONLY}"})


def is_tracking_uri(address: str) -> bool:
    """Return whether a text can be the address of an MLflow server or database.

    MLflow appends paths to the address of a server, so the address has no query and no fragment.
    """
    return is_database(address) or (is_url(address) and not set("?#") & set(address))


def is_database(address: str) -> bool:
    """Return whether an address is that of an SQLite file, with an absolute path."""
    return address.startswith("sqlite:////") and len(address) > len("sqlite:////")


class Tracker(Section):
    """A service that gets the parameters, metrics, results and final state of each trial."""

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
    """wandb: the user or team; by default that of the key that `wandb sync` uses."""
    mode: Annotated[Literal["offline"], BeforeValidator(_mode)] | None = None
    """wandb, required: offline, which writes files that `wandb sync` sends."""
    folder: AbsolutePath | None = None
    """wandb: where the files go; by default into the data folder."""

    @property
    def group(self) -> str:
        """The experiment of MLflow or the project of W&B that gets the runs."""
        return self.experiment or self.project or "det_jupyter"

    @property
    def address(self) -> str | None:
        """The address of MLflow, or a reference to it; None if there is none."""
        is_mlflow = self.type == "mlflow"
        return (self.tracking_uri or f"${{{MLFLOW_ADDRESS}}}") if is_mlflow else None

    @property
    def place(self) -> tuple[str | None, ...]:
        """Where runs are sent: equal for entries that name the same place in different ways."""
        return self.type, self.address, self.group, self.entity, self.folder

    @property
    def label(self) -> str:
        """The tracker in sentences: its name, or its type and place, without secrets."""
        if self.name:
            return self.name
        if self.address is not None:
            return f"mlflow {open_address(self.address)}"
        return f"wandb {self.group} (offline)"


def open_address(address: str) -> str:
    """Return a tracking_uri as it may be shown: without what may be secret.

    >>> open_address("http://localhost:5000"), open_address("https://ann:x@mlflow.example.org/a")
    ('http://localhost:5000', 'https://mlflow.example.org/********')
    """
    is_open = is_database(address) or (is_url(address) and is_place_only(address))
    return address if is_open else shown(address)


def find_tracker_contradictions(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each key of a tracker that belongs to another type, or is missing."""
    trackers = document.get("trackers")
    for index, entry in enumerate(trackers if isinstance(trackers, list) else ()):
        kind = entry.get("type") if isinstance(entry, Mapping) else None
        if not isinstance(kind, str) or kind not in TRACKERS:
            continue
        for other, keys in TRACKERS.items():
            for key in keys if other != kind else ():
                if entry.get(key) is not None:
                    text = f"{kind} does not have it; {other} has"
                    yield Problem(f"trackers[{index}].{key}", text)
        if kind == "wandb" and entry.get("mode") is None:
            yield Problem.missing(f"trackers[{index}].mode", f"; write offline: {_FILES_ONLY}")
