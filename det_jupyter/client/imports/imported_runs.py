"""Finds and reads runs of other tools: folders of TensorBoard's event files, and MLflow.

    given                                       runs
    a folder or an event file                   each folder that has event files is a run; they
                                                are read by the package tensorboard
    a folder mlruns, an SQLite file, a URI      those of MLflow, by its client: the package mlflow

TensorBoard's `add_hparams` makes a folder within that of its run, named by the time, which has the
hyperparameters: they are those of the run. Two event files of a run are read in the order of their
names, which begin with the time; a writer that restarts from a step discards the values after it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from det_jupyter.client.imports.event_files import check_installed
from det_jupyter.config.tracker_section import MLFLOW_CREDENTIALS, open_address
from det_jupyter.contract.run.scalars import Scalar
from det_jupyter.contract.values.addresses import (
    HIDDEN,
    has_credentials,
    is_in_the_clear,
    secrets_in,
    why_not_in_the_clear,
    without_secrets,
)
from det_jupyter.contract.values.text import count
from det_jupyter.errors import ConfigError, DetError

State = Literal["COMPLETED", "CANCELED", "ERROR"]
_TIME = re.compile(r"\d{9,}\.\d+")  # the folder that `add_hparams` makes
_EVENTS = "tfevents"
_SQLITE = b"SQLite format 3\0"
_STATES: dict[str, State] = {"FINISHED": "COMPLETED", "FAILED": "ERROR", "KILLED": "CANCELED"}
_VARIABLES = {
    "MLFLOW_ALLOW_FILE_STORE": "true",  # without this, MLflow 3 refuses its own folders
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # by default a wrong address takes four minutes
}
_CREDENTIALS_FILE = "~/.mlflow/credentials"
_SYSTEM = "system/"  # MLflow's metrics of the computer


@dataclass(slots=True, kw_only=True)
class ImportedRun:
    """A run of another tool.

    Args:
        name: Its name there, which no other run of the set has.
        notices: Remarks on its metrics, for users.
    """

    name: str
    scalars: list[Scalar]
    hparams: dict[str, Any] = field(default_factory=dict)
    state: State = "COMPLETED"
    started_at: float | None = None
    ended_at: float | None = None
    notices: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RunSet:
    """Runs that become one experiment.

    Args:
        name: Name of the experiment.
        source: Where they are, as text for users.
        identity: A key that is equal for each import of the same set.
        remarks: What was not read.
    """

    name: str
    source: str
    identity: str
    runs: list[ImportedRun]
    remarks: list[str] = field(default_factory=list)


def find_runs(given: str) -> list[RunSet]:
    """Return the runs at a path or URI.

    Raises:
        ConfigError: There are none; the message says what was looked for.
        DetError: The package tensorboard or MLflow is needed and not installed, or MLflow cannot
            be reached.
    """
    if "://" in given:
        return _of_mlflow(given, _shown(given))
    path = Path(given).expanduser()
    if not path.exists():
        raise ConfigError([f"{given}: there is no such file or folder here ({os.getcwd()})"])
    path = path.resolve()
    if path.is_file():
        with path.open("rb") as file:
            is_database = file.read(len(_SQLITE)) == _SQLITE
        if is_database:
            return _of_mlflow(f"sqlite:///{path}", str(path))
        if _EVENTS not in path.name:
            raise ConfigError([f"{given}: expected an event file of TensorBoard, whose name has "
                               f"{_EVENTS!r}, an SQLite file of MLflow, or a folder"])  # fmt: skip
    elif _is_file_store(path):
        if irregular := _irregular_files(path):
            # MLflow would wait forever for the content of a pipe, or read a device without end.
            raise ConfigError([f"{each}: it is no regular file; move it away and import again"
                               for each in irregular])  # fmt: skip
        return _of_mlflow(path.as_uri(), str(path))
    return [_of_tensorboard(path, given)]


def _of_tensorboard(path: Path, given: str) -> RunSet:
    runs: dict[str, ImportedRun] = {}
    remarks: list[str] = []
    root = path if path.is_dir() else path.parent
    for folder, files in _event_files(path):
        run = _read_run(folder, files, root, remarks)
        above = runs.get(_name_of(folder.parent, root))
        if run.hparams and above is not None and _TIME.fullmatch(folder.name):
            above.hparams |= run.hparams
        else:
            runs[run.name] = run
    if not runs:
        raise ConfigError([f"{given}: there are no event files of TensorBoard in it or below it "
                           f"(names with {_EVENTS!r}), and it is no MLflow folder"])  # fmt: skip
    found = [run for run in runs.values() if run.scalars]
    if empty := [run.name for run in runs.values() if not run.scalars]:
        remarks.append(f"without scalars, so not imported: {', '.join(empty)}")
    if not found:
        raise ConfigError([f"{given}: its event files have no scalars", *remarks])
    name = root.name or "tensorboard"
    identity = f"tensorboard {path}"
    return RunSet(name=name, source=str(path), identity=identity, runs=found, remarks=remarks)


def _event_files(path: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield each folder that has event files, parents first, with these in order."""
    if path.is_file():
        yield path.parent, [path]
        return
    for folder, inner, names in os.walk(path):
        inner.sort()
        if files := sorted(name for name in names if _EVENTS in name):
            yield Path(folder), [Path(folder, name) for name in files]


def _name_of(folder: Path, root: Path) -> str:
    return root.name if folder == root else os.path.relpath(folder, root)


def _read_run(folder: Path, files: Sequence[Path], root: Path, remarks: list[str]) -> ImportedRun:
    check_installed()
    from det_jupyter.client.imports.tfevents import read_event_file

    run = ImportedRun(name=_name_of(folder, root), scalars=[])
    for file in files:
        try:
            found = read_event_file(file)
        except OSError as error:
            remarks.append(f"{file} cannot be read: {error.strerror}")
            continue
        if found.restarts_at is not None:
            run.scalars = [each for each in run.scalars if each.step < found.restarts_at]
        run.scalars += found.scalars
        run.hparams |= found.hparams
        if found.problem:
            remarks.append(f"{file}: {found.problem}")
            run.notices.append(f"{file.name}: {found.problem}")
    return run


# MLflow


def _is_file_store(path: Path) -> bool:
    """Return whether a folder is one of MLflow: experiments are folders with a meta.yaml."""
    return path.is_dir() and any((each / "meta.yaml").is_file() for each in path.iterdir())


def _irregular_files(store: Path) -> list[Path]:
    """Return the pipes, devices and the like that MLflow would open to read its runs."""
    found = []
    for folder, below, files in os.walk(store):
        below[:] = sorted({*below} - {"artifacts"})
        found += [Path(folder, name) for name in sorted(files) if Path(folder, name).exists()]
    return [path for path in found if not path.is_file()]


def _shown(uri: str) -> str:
    """Return a URI of MLflow without what may be secret in it.

    >>> _shown("sqlite:///mlflow.db"), _shown("postgresql://ann:x@host/db")
    ('sqlite:///mlflow.db', 'postgresql://********')
    """
    scheme = uri.partition("://")[0]
    if scheme in ("file", "sqlite"):
        return uri
    return open_address(uri) if scheme in ("http", "https") else f"{scheme}://{HIDDEN}"


def _of_mlflow(uri: str, source: str) -> list[RunSet]:
    _check_credentials(uri, source)
    if find_spec("mlflow") is None:
        raise DetError(
            f"{source}: runs of MLflow are read by the package mlflow, which is not installed; "
            "run `python -m pip install mlflow` and try again"
        )
    with _mlflow_variables(uri):
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            client = MlflowClient(tracking_uri=uri)
            experiments = _pages(client.search_experiments)
            found = [_run_set(client, each, uri, source) for each in experiments]
        except MlflowException as error:
            said = without_secrets(str(error), secrets_in(uri))
            raise DetError(f"{source}: MLflow says: {said}") from None
        except ImportError as error:  # mlflow-skinny has no databases
            raise DetError(
                f"{source}: MLflow cannot read it ({error}); run `python -m pip install mlflow`"
            ) from None
    sets = [each for each in found if each.runs]
    if not sets:
        remarks = [remark for each in found for remark in each.remarks]
        raise ConfigError([f"{source}: MLflow has no runs with metrics there", *remarks])
    return sets


def _check_credentials(uri: str, source: str) -> None:
    """Check that MLflow's library sends no credentials over an unencrypted connection.

    Raises:
        DetError: It would send those of the URI, of variables, or of a file that it reads.
    """
    if not is_in_the_clear(uri):
        return
    way_out = ""
    if found := [*filter(os.environ.get, (*MLFLOW_CREDENTIALS, "MLFLOW_TRACKING_AUTH"))]:
        way_out = f"; if it needs none, unset {', '.join(found)}"
    elif Path(_CREDENTIALS_FILE).expanduser().exists():
        way_out = f"; if it needs none, move {_CREDENTIALS_FILE} away"
    if way_out or has_credentials(uri):
        raise DetError(f"{why_not_in_the_clear(uri, source)}{way_out}")


@contextmanager
def _mlflow_variables(uri: str) -> Iterator[None]:
    """Within the block, set variables of MLflow that the user has not set.

    Its library also looks for passwords in .netrc; that is prevented for an unencrypted URI.
    """
    before = {name: os.environ.get(name) for name in (*_VARIABLES, "NETRC")}
    hidden = {"NETRC": os.devnull} if is_in_the_clear(uri) else {}
    os.environ.update(
        {**_VARIABLES, **{k: v for k, v in before.items() if v is not None}, **hidden}
    )
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _pages(search: Any, *args: Any) -> Iterator[Any]:
    """Yield the results of a search of MLflow, page by page."""
    token = None
    while True:
        page = search(*args, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _run_set(client: Any, experiment: Any, uri: str, source: str) -> RunSet:
    found = RunSet(
        name=experiment.name,
        source=f"{source}, MLflow's experiment {experiment.name}",
        identity=f"mlflow {uri} {experiment.experiment_id}",
        runs=[],
    )
    empty = 0
    for run in _pages(client.search_runs, [experiment.experiment_id]):
        scalars = [
            Scalar(key, max(0, metric.step), metric.value, metric.timestamp / 1000)
            for key in run.data.metrics
            if not key.startswith(_SYSTEM)
            for metric in client.get_metric_history(run.info.run_id, key)
        ]
        if scalars:
            found.runs.append(_mlflow_run(run, scalars))
        else:
            empty += 1
    if empty:
        found.remarks.append(f"{experiment.name}: {count(empty, 'run')} without metrics left out")
    found.runs.sort(key=lambda each: (each.started_at or 0.0, each.name))
    return found


def _mlflow_run(run: Any, scalars: list[Scalar]) -> ImportedRun:
    info = run.info
    state = _STATES.get(info.status, "CANCELED")
    is_known = info.status in _STATES
    return ImportedRun(
        name=f"{info.run_name or 'run'} {info.run_id[:8]}",
        scalars=scalars,
        hparams={name: _value_of(text) for name, text in sorted(run.data.params.items())},
        state=state,
        started_at=info.start_time / 1000,
        ended_at=None if info.end_time is None else info.end_time / 1000,
        notices=[] if is_known else [f"the run was {info.status} when it was imported"],
    )


def _value_of(text: str) -> Any:
    """Return a parameter, which MLflow stores as text, as a number or boolean if it is one."""
    if text in ("True", "False"):
        return text == "True"
    try:
        value = json.loads(text)
        is_number = isinstance(value, (int, float)) and isfinite(value)
    except (ValueError, OverflowError, RecursionError):
        return text
    return value if is_number else text
