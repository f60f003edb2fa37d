"""The extension application that Jupyter Server loads: its settings, handlers and tasks."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from jupyter_events import EventLogger
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Float, Integer, List, Unicode

from det_jupyter._version import __version__
from det_jupyter.front.jupyter_server.feeder_process import Address, FeederProcess
from det_jupyter.front.jupyter_server.handlers import Info, StartCell, StartMaster
from det_jupyter.front.jupyter_server.master_lookup import MasterLookup
from det_jupyter.front.jupyter_server.monitoring import SCHEMA, SCHEMA_ID, Monitor
from det_jupyter.front.jupyter_server.proxy import Proxy, master_client
from det_jupyter.front.jupyter_server.rank_kernels import add_rank_specs
from det_jupyter.front.jupyter_server.relay import Relay

_IDLE_CHECKS = 20  # per `feeder_idle_s`
_STOP_S = 20.0  # a feeder that does not answer takes 12


class DetJupyterApp(ExtensionApp):
    """Training on several GPUs, in JupyterLab's sidebar and pages."""

    name = "det_jupyter"
    version = __version__
    description = "Training on several GPUs, in JupyterLab's sidebar and pages"
    load_other_extensions = True

    start_master = Bool(
        True, help="Whether the first page that is opened starts the master if none runs."
    ).tag(config=True)
    feeder_command = List(
        Unicode(),
        [sys.executable, "-m", "det_jupyter.reader"],
        help="The command that starts the process which makes what pages show.",
    ).tag(config=True)
    feeder_start_s = Float(60.0, help="How long that process may take to start.").tag(config=True)
    feeder_idle_s = Float(
        900.0, help="After so long without a page and without a running experiment, it ends."
    ).tag(config=True)
    most_request_bytes = Integer(
        16 * 1024 * 1024, help="The most bytes of a request that is passed on to the master."
    ).tag(config=True)
    most_page_frame_bytes = Integer(
        1024 * 1024, help="The most bytes of a frame from a page; its socket is closed at more."
    ).tag(config=True)
    most_feeder_frame_bytes = Integer(
        64 * 1024 * 1024, help="The most bytes of a frame for a page."
    ).tag(config=True)

    def initialize_settings(self) -> None:
        """Make the objects that handlers share; processes start when a page needs them."""
        self._tabs: set[Relay] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._master = MasterLookup()
        self._client = master_client()
        self._monitor = Monitor(lambda data: self._events().emit(schema_id=SCHEMA_ID, data=data))
        self._feeder = FeederProcess(
            self.feeder_command,
            start_master=self.start_master,
            start_s=self.feeder_start_s,
            on_started=self._on_feeder_started,
            log=self.log,
        )
        self._events().register_event_schema(SCHEMA)
        assert self.serverapp is not None
        if (specs := self.serverapp.kernel_spec_manager) is not None:
            add_rank_specs(specs)

    def initialize_handlers(self) -> None:
        master, feeder = self._master, self._feeder
        bounds = {
            "from_page": self.most_page_frame_bytes,
            "from_feeder": self.most_feeder_frame_bytes,
        }
        proxy = {"master": master, "client": self._client, "most_bytes": self.most_request_bytes}
        relay = {"feeder": feeder, "tabs": self._tabs, "bounds": bounds}
        self.handlers.extend(
            [
                ("/det-jupyter/info", Info, {"master": master, "feeder": feeder}),
                ("/det-jupyter/cell", StartCell, {}),
                ("/det-jupyter/master/start", StartMaster, {"master": master}),
                ("/det-jupyter/api/(.*)", Proxy, proxy),
                ("/det-jupyter/socket", Relay, relay),
            ]
        )

    async def stop_extension(self) -> None:
        """End the feeder and all tasks; called when the server stops, which waits for it.

        It always returns: after an error here the server would never end.
        """
        stopping = asyncio.ensure_future(self._stop_all())
        await asyncio.wait([stopping], timeout=_STOP_S)
        if not stopping.done():
            stopping.cancel()
            still = ", ".join(sorted(repr(task) for task in asyncio.all_tasks()))
            self.log.warning("not all of det_jupyter has ended within %g s: %s", _STOP_S, still)
        elif not stopping.cancelled() and (error := stopping.exception()) is not None:
            self.log.error("det_jupyter could not be ended", exc_info=error)

    async def _stop_all(self) -> None:
        await self._feeder.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    def _on_feeder_started(self, address: Address) -> None:
        self._run(self._monitor.follow(address))
        self._run(self._end_when_idle(address))

    async def _end_when_idle(self, address: Address) -> None:
        """End a feeder that was idle for `feeder_idle_s`, as it keeps the master from ending."""
        busy_at = time.monotonic()
        while time.monotonic() - busy_at < self.feeder_idle_s:
            await asyncio.sleep(self.feeder_idle_s / _IDLE_CHECKS)
            if not self._feeder.is_at(address):
                return
            if self._tabs or self._monitor.is_busy:
                busy_at = time.monotonic()
        await self._feeder.stop()

    def _events(self) -> EventLogger:
        assert self.serverapp is not None
        assert self.serverapp.event_logger is not None
        return self.serverapp.event_logger

    def _run(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.error("a task of det_jupyter failed", exc_info=error)
