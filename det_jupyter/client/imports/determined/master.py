"""Reads what a master of Determined has stored, by its REST interface (of version 0.38).

Credentials, of which none is stored:

    DET_USER_TOKEN, or DET_USER and DET_PASS    for the address in DET_MASTER, and no other
    given by the user                           at a prompt, for any other address
    DET_MASTER_CERT_FILE                        certificate of an https:// address

To an `http://` address of another computer they are sent only if DET_MASTER is that address.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx

from det_jupyter.client.imports.determined.records import (
    FoundCheckpoint,
    FoundExperiment,
    FoundModel,
    FoundReport,
    FoundTrial,
    FoundVersion,
    line_of,
    plain_state,
    refusing,
    seconds,
    steps_of,
)
from det_jupyter.contract.messages import ImportedLine
from det_jupyter.contract.values.addresses import (
    has_credentials,
    is_in_the_clear,
    is_place_only,
    is_url,
    why_not_in_the_clear,
)
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import DetError, NotFound

Credentials: TypeAlias = Callable[[str], tuple[str, str]]  # of an address: user and password
_PAGE = 200
_TIMEOUT_S = 60.0
_GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}
_FIRST = ("training", "validation")


class DeterminedMaster:
    """A DeterminedSource: a master that runs. A context manager, which logs in.

    Args:
        address: Such as http://localhost:8080.
        ask: Returns user and password, if the environment has none for this address.

    Raises:
        DetError: It is no address of a master, or credentials would be sent in the clear.
    """

    is_live = True

    def __init__(self, address: str, ask: Credentials) -> None:
        self.name = address.rstrip("/")
        if not is_url(self.name) or not is_place_only(self.name):
            shown = "one with more than a host and a port" if has_credentials(address) else address
            raise DetError(
                f"--from-determined: got {shown}, expected the address of a master, such as "
                "http://localhost:8080, or the file of a dump"
            )
        self._is_named = os.environ.get("DET_MASTER", "").rstrip("/") == self.name
        if is_in_the_clear(self.name) and not self._is_named:
            raise DetError(
                f"--from-determined: {why_not_in_the_clear(self.name, self.name)}; or set "
                f"DET_MASTER={self.name}, if you trust the network"
            )
        self._ask = ask
        self.cluster_id = ""

    def __enter__(self) -> DeterminedMaster:
        certificate = os.environ.get("DET_MASTER_CERT_FILE") if self._is_named else None
        try:
            verify = ssl.create_default_context(cafile=certificate or None)
        except OSError as error:
            raise DetError(f"DET_MASTER_CERT_FILE: {certificate}: {error.strerror}") from None
        self._http = httpx.Client(base_url=self.name, timeout=_TIMEOUT_S, verify=verify)
        try:
            self.cluster_id = str(self._get("/master").get("clusterId") or "")
            if not self.cluster_id:
                raise self._no_master("it has no clusterId")
            token = self._token().strip()
            if not token.isascii() or not token.isprintable():  # httpx would show it
                raise DetError(f"{self.name}: the token has characters that no token has")
            self._http.headers["Authorization"] = f"Bearer {token}"
        except BaseException:  # whatever it is, the connection is not needed any more
            self._http.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def _token(self) -> str:
        own = os.environ if self._is_named else {}
        if token := own.get("DET_USER_TOKEN"):
            return token
        user, password = own.get("DET_USER"), own.get("DET_PASS")
        if user is None or password is None:
            user, password = self._ask(self.name)
        body = {"username": user, "password": password, "isHashed": False}
        with self._explaining():
            answer = self._http.post("/api/v1/auth/login", json=body)
            return str(self._read(answer)["token"])

    def experiments(self) -> Iterator[FoundExperiment]:
        """Yield all experiments, by their ids."""
        with self._explaining():
            order = {"sortBy": "SORT_BY_ID", "orderBy": "ORDER_BY_ASC"}
            for listed in self._pages("/experiments", "experiments", order):
                answer = self._get(f"/experiments/{listed['id']}")
                one = answer["experiment"]
                ended_at = one.get("endTime")
                yield FoundExperiment(
                    id=one["id"],
                    config=answer.get("config") or one["config"],
                    state=plain_state(one["state"]),
                    notes=one.get("notes") or "",
                    is_archived=one.get("archived", False),
                    created_at=seconds(one["startTime"]),
                    ended_at=seconds(ended_at) if ended_at else None,
                )

    def code(self, experiment_id: int) -> bytes:
        """Return the context directory."""
        try:
            answer = self._get(f"/experiments/{experiment_id}/model_def")
        except NotFound:  # an experiment that was run elsewhere, and only reported
            return b""
        with self._explaining():
            return base64.b64decode(answer.get("b64Tgz") or "")

    def trials(self, experiment_id: int) -> Iterator[FoundTrial]:
        """Yield the trials of an experiment, by their ids."""
        with self._explaining():
            order = {"sortBy": "SORT_BY_ID", "orderBy": "ORDER_BY_ASC"}
            for one in self._pages(f"/experiments/{experiment_id}/trials", "trials", order):
                if "summaryMetrics" not in one:
                    one = self._get(f"/trials/{one['id']}")["trial"]
                ended_at = one.get("endTime")
                groups = (_GROUPS.get(each, each) for each in one.get("summaryMetrics") or {})
                tasks = one.get("taskIds") or filter(None, [one.get("taskId")])
                yield FoundTrial(
                    id=one["id"],
                    state=plain_state(one["state"]),
                    hparams=one.get("hparams") or {},
                    restarts=one.get("restarts") or 0,
                    steps_completed=one.get("totalBatchesProcessed") or 0,
                    created_at=seconds(one["startTime"]),
                    ended_at=seconds(ended_at) if ended_at else None,
                    groups=tuple(dict.fromkeys((*_FIRST, *sorted(groups)))),
                    task_ids=tuple(tasks),
                )

    def reports(self, trial: FoundTrial, group: str) -> Iterator[FoundReport]:
        """Yield the metrics of a group."""
        with self._explaining():
            given = {"group": group, "trialIds": trial.id}
            for answer in self._stream("/trials/metrics/trial_metrics", given):
                for one in answer["metrics"]:
                    if not one.get("archived"):
                        yield FoundReport(
                            id=int(one["id"]),
                            group=group,
                            at=seconds(one["endTime"]),
                            steps_completed=one["totalBatches"],
                            metrics=one["metrics"],
                        )

    def checkpoints(self, experiment_id: int) -> Iterator[FoundCheckpoint]:
        """Yield the checkpoints of an experiment."""
        with self._explaining():
            for one in self._pages(f"/experiments/{experiment_id}/checkpoints", "checkpoints"):
                yield FoundCheckpoint(
                    uuid=one["uuid"],
                    trial_id=one["training"]["trialId"],
                    state=plain_state(one["state"]),
                    steps_completed=steps_of(one.get("metadata") or {}),
                    size_bytes=sum(map(int, (one.get("resources") or {}).values())),
                    created_at=seconds(one["reportTime"]),
                )

    def log(self, trial: FoundTrial) -> Iterator[ImportedLine]:
        """Yield the log of a trial."""
        with self._explaining():
            for task_id in trial.task_ids:
                given = {"orderBy": "ORDER_BY_ASC"}
                for one in self._stream(f"/tasks/{quote(task_id, safe='')}/logs", given):
                    level = one.get("level", "").removeprefix("LOG_LEVEL_")
                    yield line_of(one["timestamp"], one.get("rankId"), level, one["log"])

    def models(self) -> Iterator[FoundModel]:
        """Yield all models, by name."""
        with self._explaining():
            for one in self._pages("/models", "models", {"sortBy": "SORT_BY_NAME"}):
                order = {"sortBy": "SORT_BY_VERSION", "orderBy": "ORDER_BY_ASC"}
                path = f"/models/{quote(one['name'], safe='')}/versions"
                versions = [
                    FoundVersion(
                        number=each["version"],
                        uuid=each["checkpoint"]["uuid"],
                        **_described(each, "name", "comment"),
                    )
                    for each in self._pages(path, "modelVersions", order)
                ]
                yield FoundModel(**_described(one, "name", "description"), versions=versions)

    def _pages(
        self, path: str, name: str, more: dict[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages of a list."""
        offset = 0
        while True:
            page = self._get(path, {"limit": _PAGE, "offset": offset, **(more or {})})
            items = page.get(name) or []
            yield from items
            offset += len(items)
            if not items or offset >= (page.get("pagination") or {}).get("total", 0):
                return

    def _get(self, path: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
        with self._explaining():
            return self._read(self._http.get(f"/api/v1{path}", params=given))

    def _read(self, answer: httpx.Response) -> dict[str, Any]:
        self._check(answer)
        return self._parsed(answer.text)

    def _parsed(self, text: str) -> dict[str, Any]:
        """Return an object of JSON. What is none may be cut off: it is no reason to go on."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._no_master("no JSON, or JSON that is cut off")
        return found

    def _no_master(self, why: str) -> DetError:
        return DetError(
            f"{self.name} does not answer as a master of Determined 0.38 ({why}); start the "
            "import again when it does: it goes on with what is missing"
        )

    def _stream(self, path: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the results of an answer that is a line of JSON for each."""
        with (
            self._explaining(),
            self._http.stream("GET", f"/api/v1{path}", params=given) as answer,
        ):
            if answer.is_error:
                answer.read()
            self._check(answer)
            for line in filter(None, answer.iter_lines()):
                one = self._parsed(line)
                if "error" in one:
                    raise DetError(f"{self.name}: it answered {path} with {_said(one)}")
                yield one["result"]

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            with refusing():
                yield
        except httpx.HTTPError as error:
            raise DetError(
                f"{self.name} does not answer ({error or type(error).__name__}); start the import "
                "again when it does: it goes on with what is missing"
            ) from None

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code in (401, 403):
            raise DetError(
                f"{self.name} refuses the user and password, or the token; set DET_USER and "
                f"DET_PASS, or DET_USER_TOKEN, and DET_MASTER={self.name}, or type them when asked"
            )
        if not answer.is_success:
            try:
                said = _said(answer.json())
            except (ValueError, AttributeError):
                said = f"to {answer.headers.get('Location')}" if answer.is_redirect else "no JSON"
            kind = NotFound if answer.status_code == 404 else DetError
            path = answer.request.url.path
            raise kind(f"{self.name}: {path}: status {answer.status_code}, {said}")


def _said(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    found = error.get("message") if isinstance(error, dict) else error or answer.get("message")
    return printable(str(found or "no message"))[:200]


def _described(one: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields that models and versions have: texts, labels and metadata."""
    texts = {name: one.get(name) or "" for name in (*names, "notes")}
    return {**texts, "labels": one.get("labels") or [], "metadata": one.get("metadata") or {}}
