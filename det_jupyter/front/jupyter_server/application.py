"""The extension application that Jupyter Server loads: its settings, handlers and tasks."""

from __future__ import annotations

import asyncio

from jupyter_events import EventLogger
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Integer, List, Unicode

from det_jupyter._version import __version__
from det_jupyter.front.jupyter_server import questions
from det_jupyter.front.jupyter_server.handlers import Info, StartCell, StartMaster
from det_jupyter.front.jupyter_server.master_lookup import MasterLookup, MasterWatch
from det_jupyter.front.jupyter_server.monitoring import SCHEMA, SCHEMA_ID, Monitor
from det_jupyter.front.jupyter_server.proxy import Proxy, master_client
from det_jupyter.front.jupyter_server.rank_kernels import add_rank_specs
from det_jupyter.front.jupyter_server.reader_sockets import ReaderSockets
from det_jupyter.front.jupyter_server.relay import Relay

_STOP_S = 20.0  # sockets to a reader that does not answer take 5


class DetJupyterApp(ExtensionApp):
    """Training on several GPUs, in JupyterLab's sidebar and pages."""

    name = "det_jupyter"
    version = __version__
    description = "Training on several GPUs, in JupyterLab's sidebar and pages"
    load_other_extensions = True

    start_master = Bool(
        True, help="Whether the first page that is opened starts the master if none runs."
    ).tag(config=True)
    allowed_tools = List(
        Unicode(),
        help="The tools of assistants, such as pause, that change something and need no yes.",
    ).tag(config=True)
    most_request_bytes = Integer(
        16 * 1024 * 1024, help="The most bytes of a request that is passed on to the master."
    ).tag(config=True)
    most_page_frame_bytes = Integer(
        1024 * 1024, help="The most bytes of a frame from a page; its socket is closed at more."
    ).tag(config=True)
    most_reader_frame_bytes = Integer(
        64 * 1024 * 1024, help="The most bytes of a frame for a page."
    ).tag(config=True)

    def initialize_settings(self) -> None:
        """Make the objects that handlers share; all tasks start when a page is opened."""
        self._tabs: set[Relay] = set()
        self._master = MasterLookup(may_start=self.start_master)
        self._watch = MasterWatch(self._master)
        self._client = master_client()
        self._readers = ReaderSockets(self._client, most_bytes=self.most_reader_frame_bytes)
        self._monitor = Monitor(
            lambda data: self._events().emit(schema_id=SCHEMA_ID, data=data),
            find_master=self._master.find,
            readers=self._readers,
            is_needed=lambda: bool(self._tabs),
        )
        self._questions = questions.OpenQuestions(
            lambda data: self._events().emit(schema_id=questions.SCHEMA_ID, data=data),
            self.allowed_tools,
        )
        self._events().register_event_schema(SCHEMA)
        self._events().register_event_schema(questions.SCHEMA)
        assert self.serverapp is not None
        if (specs := self.serverapp.kernel_spec_manager) is not None:
            add_rank_specs(specs)

    def initialize_handlers(self) -> None:
        master = self._master
        proxy = {"master": master, "client": self._client, "most_bytes": self.most_request_bytes}
        relay = {
            "watch": self._watch,
            "readers": self._readers,
            "tabs": self._tabs,
            "on_connected": self._monitor.begin,
            "most_bytes": self.most_page_frame_bytes,
        }
        asked = {"questions": self._questions}
        self.handlers.extend(
            [
                ("/det-jupyter/info", Info, {"master": master}),
                ("/det-jupyter/cell", StartCell, {}),
                ("/det-jupyter/master/start", StartMaster, {"master": master}),
                ("/det-jupyter/questions", questions.AskQuestion, asked),
                ("/det-jupyter/questions/([0-9a-f]+)", questions.AnswerQuestion, asked),
                ("/det-jupyter/api/(.*)", Proxy, proxy),
                ("/det-jupyter/socket", Relay, relay),
            ]
        )

    async def stop_extension(self) -> None:
        """End all sockets and tasks; called when the server stops, which waits for it.

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
        await asyncio.gather(self._monitor.close(), *(tab.end() for tab in list(self._tabs)))
        await self._readers.close()
        await self._client.aclose()

    def _events(self) -> EventLogger:
        assert self.serverapp is not None
        assert self.serverapp.event_logger is not None
        return self.serverapp.event_logger
