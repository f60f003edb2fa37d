"""A stand-in of Determined's master: its REST interface with the rows of determined_world.py."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.determined_world import CLUSTER, HOST_PATH, ROWS


def _stamp(text: str | None) -> str | None:
    return text and text.replace(" ", "T").replace("+00", "Z")


def _of(table: str, **equal: Any) -> list[dict[str, Any]]:
    return [row for row in ROWS[table] if all(row[key] == equal[key] for key in equal)]


def _experiment_answer(row: dict[str, Any], host_path: str) -> dict[str, Any]:
    config = json.loads(json.dumps(row["config"]).replace(HOST_PATH, host_path))
    return {
        "id": row["id"],
        "state": f"STATE_{row['state']}",
        "config": config,
        "name": config["name"],
        "notes": row["notes"],
        "archived": row["archived"],
        "startTime": _stamp(row["start_time"]),
        "endTime": _stamp(row["end_time"]),
        "numTrials": len(_of("runs", experiment_id=row["id"])),
        "username": "ann",
    }


def _trial_answer(row: dict[str, Any]) -> dict[str, Any]:
    names = {"training": "avg_metrics", "validation": "validation_metrics"}
    groups = {each["metric_group"] for each in _of("metrics", trial_id=row["id"])}
    return {
        "id": row["id"],
        "experimentId": row["experiment_id"],
        "state": f"STATE_{row['state']}",
        "hparams": row["hparams"],
        "restarts": row["restarts"],
        "totalBatchesProcessed": row["total_batches"],
        "startTime": _stamp(row["start_time"]),
        "endTime": _stamp(row["end_time"]),
        "summaryMetrics": {names.get(group, group): {} for group in sorted(groups)},
        "taskId": f"1.trial-{row['id']}",
        "taskIds": [f"1.trial-{row['id']}"],
    }


def _report_answer(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "trialId": row["trial_id"],
        "endTime": _stamp(row["end_time"]),
        "metrics": row["metrics"],
        "totalBatches": row["total_batches"],
        "archived": row["archived"],
        "id": row["id"],
        "trialRunId": 0,
        "group": row["metric_group"],
    }


def _checkpoint_answer(row: dict[str, Any]) -> dict[str, Any]:
    (link,) = _of("run_checkpoints", checkpoint_id=row["uuid"])
    return {
        "uuid": row["uuid"],
        "taskId": row["task_id"],
        "reportTime": _stamp(row["report_time"]),
        "resources": {name: str(size) for name, size in row["resources"].items()},
        "metadata": row["metadata"],
        "state": f"STATE_{row['state']}",
        "training": {"trialId": link["run_id"]},
    }


def _log_answer(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "taskId": row["task_id"],
        "timestamp": _stamp(row["timestamp"]),
        "level": f"LOG_LEVEL_{row['level']}",
        "log": row["log"],
        "message": f"[{row['timestamp']}] || {row['log']}",
        "rankId": row["rank_id"],
    }


def answer(path: str, query: dict[str, str], host_path: str) -> Any:
    """Return the answer to a GET request; a list is a stream of results, None: not found."""
    limit, offset = int(query.get("limit", 0)), int(query.get("offset", 0))

    def page(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        part = rows[offset : offset + limit] if limit else rows[offset:]
        return {name: part, "pagination": {"offset": offset, "limit": limit, "total": len(rows)}}

    match path.strip("/").split("/"):
        case ["experiments"]:
            rows = [_experiment_answer(each, host_path) for each in ROWS["experiments"]]
            return page("experiments", rows)
        case ["experiments", number, *inner]:
            (row,) = _of("experiments", id=int(number))
            if not inner:
                one = _experiment_answer(row, host_path)
                return {"experiment": one, "config": one["config"]}
            if inner == ["model_def"]:
                return {"b64Tgz": base64.b64encode(row["model_definition"]).decode()}
            runs = _of("runs", experiment_id=int(number))
            if inner == ["trials"]:
                return page("trials", [_trial_answer(each) for each in runs])
            own = [
                each
                for each in map(_checkpoint_answer, ROWS["checkpoints_v2"])
                if each["training"]["trialId"] in [run["id"] for run in runs]
            ]
            return page("checkpoints", own)
        case ["trials", "metrics", "trial_metrics"]:
            found = _of("metrics", trial_id=int(query["trialIds"]), metric_group=query["group"])
            return [{"metrics": [_report_answer(each)]} for each in found]
        case ["tasks", task, "logs"]:
            return [_log_answer(each) for each in _of("task_logs", task_id=task)]
        case ["models"]:
            return page("models", ROWS["models"])
        case ["models", name, "versions"]:
            (model,) = _of("models", name=name)
            versions = _of("model_versions", model_id=model["id"])
            rows = [{**each, "checkpoint": {"uuid": each["checkpoint_uuid"]}} for each in versions]
            return page("modelVersions", rows)
    return None


class StandIn:
    """A master of Determined that answers requests; user ann, password secret.

    Args:
        url: Its address.
        requests: The paths that were requested.
        left: The number of requests that it still answers; None: all.
        host_path: Of the checkpoints.
    """

    def __init__(self, url: str, host_path: str) -> None:
        self.url = url
        self.requests: list[str] = []
        self.left: int | None = None
        self.host_path = host_path

    def answer(self, path: str, query: dict[str, str], token: str) -> tuple[int, Any]:
        """Return status and answer of a GET request."""
        self.requests.append(path)
        if path == "/api/v1/master":
            return 200, {"version": "0.38.0", "masterId": "m", "clusterId": CLUSTER}
        if token != "Bearer token-1":
            return 401, {"error": {"code": 16, "message": "invalid credentials"}}
        found = answer(path.removeprefix("/api/v1"), query, self.host_path)
        return (404, {"message": "not found"}) if found is None else (200, found)

    def is_away(self) -> bool:
        """Count a request; return whether it gets no answer."""
        if self.left is not None:
            self.left -= 1
        return self.left is not None and self.left < 0


@contextmanager
def stand_in(host_path: str = HOST_PATH) -> Iterator[StandIn]:
    """Yield a master that runs in this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if master.is_away():
                self.close_connection = True
                return
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            token = self.headers.get("Authorization", "")
            status, found = master.answer(unquote(url.path), query, token)
            lines = [{"result": each} for each in found] if isinstance(found, list) else [found]
            self._send(status, "".join(f"{json.dumps(each)}\n" for each in lines))

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if given == {"username": "ann", "password": "secret", "isHashed": False}:
                self._send(200, json.dumps({"token": "token-1", "user": {"username": "ann"}}))
            else:
                self._send(401, json.dumps({"error": {"message": "invalid credentials"}}))

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_given: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    master = StandIn(f"http://127.0.0.1:{server.server_port}", host_path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield master
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
