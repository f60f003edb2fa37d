"""`det support-bundle`: collects what a bug report needs in a tar file, without secrets.

    README.txt                what is in it
    versions.json             of Python, the system and installed packages
    variables.json            environment variables that affect training
    master/*.json             the master's status, slots, queue and tasks
    logs/*                    the ends of the logs of master, agent and fork servers
    experiments/7/*           configuration, states, checkpoints and output; no code

It works without a master too. What cannot be collected is listed in problems.txt.
"""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from det_jupyter._version import __version__
from det_jupyter.client.client import Client
from det_jupyter.client.following.log_lines import line_text, read
from det_jupyter.client.sharing.known_secrets import captured_values, secrets_of_environment
from det_jupyter.connection import announced_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import ExperimentQuery, ExperimentView, LogQuery
from det_jupyter.contract.values.redacting import Redactor
from det_jupyter.contract.values.text import error_text, size
from det_jupyter.contract.values.variables import assigned_values
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.front.verbs.experiment_list import numbers_of
from det_jupyter.front.verbs.grammar import Call

_NUM_EXPERIMENTS = 3  # the newest ones, if the line names none
_LOG_BYTES = 2 * 2**20  # from the end of each log
_MAX_WAITING = 1000
_MAX_LINES = 2000  # lines of output from each experiment
_VARIABLES = (  # prefixes of names
    "DET_",
    "CUDA",
    "NCCL",
    "GLOO",
    "OMP_",
    "MKL_",
    "TORCH",
    "PYTHON",
    "JUPYTER",
)
_ABOUT = """A support bundle of det_jupyter {version}, {at}.

Secrets were taken out: tokens, passwords, values of environment variables of experiments, and what
looks like one. Paths, names of files and hosts, and what your code printed are still in it: have a
look before you send it. The code itself, data and checkpoints are not in it.
"""


def bundle(call: Call) -> str:
    """Write a support bundle; return a sentence with its path and size."""
    collected = _Collected()
    views = list(_experiments(call, collected))
    collected.redactor = Redactor(_secrets(call.client, views, collected))
    _collect(call.client, views, collected)
    name = time.strftime("det-support-%Y%m%d-%H%M%S")
    path = Path(call.options.output or f"{name}.tar.gz").expanduser()
    if path.is_dir():
        path /= f"{name}.tar.gz"
    try:
        num_bytes = collected.write(path, name)
    except OSError as error:
        raise DetError(f"{path}: cannot be written: {error.strerror or error}") from None
    return (
        f"Wrote {path} ({len(collected.files)} files, {size(num_bytes)}). Secrets were taken out; "
        "have a look before you send it."
    )


def _json(document: Any) -> str:
    return f"{json.dumps(document, indent=2, ensure_ascii=False)}\n"


class _Collected:
    """The redacted files of a bundle by name, and a line for each that could not be made."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.problems: list[str] = []
        self.redactor = Redactor()

    def add(self, name: str, make: Callable[[], str]) -> None:
        """Add the text that `make` returns, redacted; if it raises, add a line to `problems`."""
        try:
            self.files[name] = self.redactor.text(make())
        except Exception as error:  # bundles are made when something is broken: collect the rest
            self.problems.append(f"{name}: {error_text(error)}")

    def add_document(
        self, name: str, make: Callable[[], Any], dump: Callable[[Any], str] = _json
    ) -> None:
        """Add a JSON-like value, redacted item by item so that the file can still be parsed."""
        try:
            self.files[name] = dump(self.redactor.document(make()))
        except Exception as error:  # as in `add`
            self.problems.append(f"{name}: {error_text(error)}")

    def write(self, path: Path, folder: str) -> int:
        """Write a tar file that only the user can read; return its size in bytes."""
        if self.problems:
            lines = [*map(self.redactor.text, self.problems), ""]
            self.files["problems.txt"] = "\n".join(lines)
        with (
            open(path, "wb", opener=paths.private_opener) as file,
            tarfile.open(fileobj=file, mode="w:gz") as tar,
        ):
            for name, text in sorted(self.files.items()):
                content = text.encode("utf-8", "replace")
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
                tar.addfile(member, io.BytesIO(content))
        return path.stat().st_size


def _experiments(call: Call, collected: _Collected) -> Iterator[ExperimentView]:
    """Yield the experiments that the line names, or the newest ones."""
    named = getattr(call.options, "ids", [])
    try:
        if (trial := getattr(call.options, "id", None)) is not None:
            numbers = [call.client.trial(trial).experiment_id]
        elif named:
            numbers = numbers_of(call)
        else:
            query = ExperimentQuery(archived=True, limit=_NUM_EXPERIMENTS)
            numbers = [row.id for row in call.client.find(query).rows]
        for number in numbers:
            yield call.client.experiment(number)
    except MasterUnreachable as error:
        collected.problems.append(f"master and experiments: {error}")


def _secrets(client: Client, views: list[ExperimentView], collected: _Collected) -> Iterator[str]:
    """Yield the values to redact wherever they occur.

    These are the master's token, secrets of this environment, and the environment variables of the
    experiments.
    """
    with suppress(DetError):
        if (info := announced_master()) is not None:
            yield info.token
    yield from (value for _, value in secrets_of_environment())
    for view in views:
        yield from assigned_values(view.config).values()
        try:
            yield from (value for _, value in captured_values(client, view))
        except (DetError, ValueError, KeyError) as error:
            collected.problems.append(f"variables of {view.id}: {error_text(error)}")


def _collect(client: Client, views: list[ExperimentView], collected: _Collected) -> None:
    about = {"version": __version__, "at": time.strftime("%Y-%m-%d %H:%M:%S")}
    collected.files["README.txt"] = _ABOUT.format(**about)
    collected.add_document("versions.json", _versions)
    collected.add_document(
        "variables.json",
        lambda: {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
    )
    for path in sorted(paths.log_dir().iterdir()):
        collected.add(f"logs/{path.name}", partial(_tail, path))
    if announced_master() is None:
        return
    documents: dict[str, Callable[[], Any]] = {
        "info": lambda: client.session.info.model_dump(mode="json", exclude={"token"}),
        "status": lambda: client.session.get("/status"),
        "cluster": lambda: client.cluster(limit=_MAX_WAITING).model_dump(mode="json"),
        "jobs": lambda: [job.model_dump(mode="json") for job in client.jobs()],
        "problems": client.problems,
    }
    for name, fetch in documents.items():
        collected.add_document(f"master/{name}.json", fetch)
    for view in views:
        _collect_experiment(client, view, collected)


def _collect_experiment(client: Client, view: ExperimentView, collected: _Collected) -> None:
    folder, number = f"experiments/{view.id}", view.id
    document = view.model_dump(mode="json")
    collected.add_document(
        f"{folder}/config.yaml",
        lambda: document["config"],
        lambda config: str(yaml.safe_dump(config, sort_keys=False)),
    )
    collected.add_document(f"{folder}/experiment.json", lambda: document)
    collected.add_document(
        f"{folder}/checkpoints.json",
        lambda: [each.model_dump(mode="json") for each in client.checkpoints(number)],
    )
    collected.add(
        f"{folder}/output.txt",
        lambda: "\n".join(
            map(
                line_text,
                read(lambda q: client.experiment_logs(number, q), LogQuery(), _MAX_LINES),
            )
        ),
    )


def _versions() -> dict[str, Any]:
    packages = {each.name: each.version for each in metadata.distributions() if each.name}
    return {
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - _LOG_BYTES - 1))
        if file.tell():
            file.readline()  # the rest of a line may be the rest of a secret
        return file.read().decode("utf-8", "replace")
