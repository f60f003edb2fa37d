"""Receivers of alerts, and a master that sends what is due when a test asks for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from det_jupyter.contract.messages import AlertNews
from det_jupyter.master.delivery.alert_requests import FailedAttempt
from det_jupyter.master.delivery.alerts import Alerts
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.stored_alerts import Destination
from tests.integration.master_support import (
    Bench,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_request,
    started,
    validation,
)

SECRET = "QzSecretzQ"


class Receiver:
    """An HTTP server that answers as it is told, and keeps what it receives."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Mapping[str, str]]] = []  # the next ones; then 200
        self.received: list[tuple[str, Any]] = []
        self.holds = threading.Event()  # if cleared, no answer is given
        self.holds.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append((self.path, json.loads(body)))
                receiver.holds.wait(600)
                status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    bench = Bench(folder / "det.sqlite3")
    try:
        yield bench
    finally:
        bench.service.close()


def submit(bench: Bench, **changes: Any) -> int:
    return asyncio.run(bench.service.submit(make_request(**changes))).id


def complete(bench: Bench, number: int = 1) -> None:
    """Let the only trial of an experiment train to its end."""
    run = f"{number}.{number}.1"
    records = [started(), first_step(), validation(100, 0.5), *last_words()]
    bench.report(gang_started(run), make_chunk(records, run=run), gang_exited(run))
    assert bench.service.machine.state.experiment(number).state == "COMPLETED"


def send_due(bench: Bench, **options: Any) -> None:
    """Send what is due at the bench's time."""

    async def run() -> None:
        outbox = Alerts(bench.service, clock=lambda: bench.now, pause_s=0.0, **options).outbox
        for _ in range(100):
            await outbox.start_due()
            if not outbox.sending:
                return
            while outbox.sending:
                await asyncio.wait(list(outbox.sending.values()))
        raise AssertionError("alerts are sent for ever")

    asyncio.run(run())


def states(bench: Bench) -> list[tuple[str, int, str]]:
    found = bench.store.alerts.deliveries(100)
    return [(each.state, each.attempts, each.problem) for each in reversed(found)]


async def refusing(
    addresses: Addresses, destination: Destination, news: AlertNews
) -> FailedAttempt:
    return FailedAttempt(problem="it refuses")


class Flaky:
    """Stands for receivers: they fail while `is_broken`; counts what has arrived."""

    def __init__(self) -> None:
        self.is_broken = False
        self.arrived: list[tuple[str, int]] = []

    async def __call__(
        self, addresses: Addresses, destination: Destination, news: AlertNews
    ) -> FailedAttempt | None:
        if self.is_broken:
            return FailedAttempt(problem="broken")
        self.arrived.append((str(destination.alert.name), news.experiment_id))
        return None
