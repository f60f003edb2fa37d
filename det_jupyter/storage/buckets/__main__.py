"""The process that transfers: carries out requests about buckets, some at a time.

    stdin     a request per line: {"id": 1, "call": "files", "location": ..., "uuid": ..., ...}
    stdout    an answer per line: {"id": 1, "result": ...}
                              or  {"id": 1, "problem": {"kind": ..., "text": ..., ...}}

obstore has threads of its own, so it works in no process that was forked from one that uses it,
and programs that fork ask this one instead. It ends with the process that has started it, and when
nothing was asked for a while; the next one looks up credentials anew. What it has not completed is
asked of that one again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from det_jupyter.errors import BucketProblem
from det_jupyter.storage.buckets.objects import Objects
from det_jupyter.storage.buckets.opening import open_bucket
from det_jupyter.storage.buckets.probes import check, has, put_probe, remove_probes
from det_jupyter.storage.buckets.sweeping import scan, sweep

_IDLE_S = 60.0
_POLL_S = 0.5
_AT_ONCE = 32  # requests; the transfers of all of them are fewer (objects.py)


def _answer(request: dict[str, Any]) -> Any:
    """Carry out a request, and return its result."""
    location, given = request["location"], request.get("given", {})
    if request["call"] == "check":
        return check(location)
    if request["call"] == "scan":
        return scan(location)
    if request["call"] == "sweep":
        return sweep(location, given["age_s"], given["remove"])
    if request["call"] == "put_probe":
        return put_probe(location)[0]
    if request["call"] == "remove_probe":
        return remove_probes(location, [given["name"]])
    if request["call"] == "has":
        return has(location, given["name"])
    objects = Objects(location, request["uuid"])
    calls: dict[str, Callable[[], Any]] = {
        "put": lambda: objects.put(Path(given["folder"]), given["share"]),
        "commit": lambda: objects.commit(
            Path(given["folder"]), given["share"], given["num_shares"]
        ),
        "files": objects.files,
        "get": lambda: objects.get(Path(given["folder"]), given["names"]),
        "delete": lambda: objects.delete(given["names"]),
        "discard": objects.discard,
    }
    return calls[request["call"]]()


class _Requests:
    """The requests that are carried out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_open = 0
        self._last_at = time.monotonic()

    def begin(self) -> None:
        with self._lock:
            self._num_open += 1

    def carry_out(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer["result"] = _answer(request)
        except BucketProblem as problem:
            if problem.kind == "refused":
                open_bucket.cache_clear()  # the keys may be replaced meanwhile
            answer["problem"] = {"kind": problem.kind, "text": str(problem)}
        except OSError as error:  # of this computer's disk
            answer["problem"] = {
                "kind": "disk", "errno": error.errno, "text": error.strerror,
                "file": str(error.filename or ""),
            }  # fmt: skip
        except Exception as error:  # its text may have credentials
            where = request["location"]
            answer["problem"] = {"kind": "other", "text": f"{where}: {type(error).__name__}"}
        with self._lock:
            print(json.dumps(answer), flush=True)
            self._num_open -= 1
            self._last_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """How long nothing was carried out, 0 while something is."""
        with self._lock:
            return 0.0 if self._num_open else time.monotonic() - self._last_at


def _watch(requests: _Requests, parent: int) -> None:
    """End this process when its parent has ended, or when it is idle."""
    while os.getppid() == parent and requests.idle_s < _IDLE_S:
        time.sleep(_POLL_S)
    os._exit(0)


def main() -> None:
    """Carry out requests until there are no more."""
    requests = _Requests()
    threading.Thread(target=_watch, args=(requests, int(sys.argv[1])), daemon=True).start()
    threads = ThreadPoolExecutor(_AT_ONCE)
    for line in sys.stdin:
        requests.begin()
        threads.submit(requests.carry_out, json.loads(line))
    os._exit(0)  # at once, whatever is transferred


if __name__ == "__main__":
    main()
