"""The master's program: constructs its parts, serves, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict

from pydantic import ValidationError

from det_jupyter._version import __version__
from det_jupyter.config.storages import VARIABLE
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.host.daemons import LOG_BYTES, PrivateLog, keep_trimmed
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import PROTOCOL, MasterInfo, SetPools, State
from det_jupyter.contract.values.text import error_line
from det_jupyter.engine import Engine
from det_jupyter.errors import DetError
from det_jupyter.master.background.agent_supervisor import AgentSupervisor, shut_down
from det_jupyter.master.background.cleanup import clean_up, keep_series
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.background.consult import consult
from det_jupyter.master.background.deleting import delete
from det_jupyter.master.background.disks import DiskWatch
from det_jupyter.master.background.reader_process import ReaderProcess
from det_jupyter.master.background.reader_starter import ReaderStarter
from det_jupyter.master.delivery.alerts import Alerts
from det_jupyter.master.delivery.trackers import LOG as TRACKERS_LOG
from det_jupyter.master.delivery.trackers import Trackers
from det_jupyter.master.http.agent_listener import AgentListener, access_routes
from det_jupyter.master.http.api import create_app
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.http.routes_alerts import alert_routes
from det_jupyter.master.http.routes_checks import check_routes
from det_jupyter.master.http.routes_disks import disk_routes
from det_jupyter.master.http.routes_joined import joined_cluster_routes
from det_jupyter.master.http.routes_reader import reader_routes
from det_jupyter.master.http.routes_trackers import tracker_routes
from det_jupyter.master.http.routes_uploads import upload_routes
from det_jupyter.master.http.server import Server
from det_jupyter.master.machine.model.events import AgentAway, ClockStepped, SlotsSettled
from det_jupyter.master.sampling.samplers import Samplers
from det_jupyter.master.service.committing.reserve import Reserve
from det_jupyter.master.service.pools_file import read_pools
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.store import Store
from det_jupyter.storage.buckets.process import transfers

logger = logging.getLogger(__name__)

IDLE_VARIABLE = "DET_JUPYTER_IDLE_HOURS"
_IDLE_HOURS = 12.0
_IDLE_CHECK_S = 60.0
_BACKLOG = 2048  # connections that wait until the reader has been started
_LISTEN_S = 2.0  # pause between attempts to open the port for agents of other computers
_FILE_CHECK_S = 1.0
_CLOCK_CHECK_S = 1.0
_SETTLE_CHECK_S = 0.5


def serve(engine: Engine, starter: ReaderStarter) -> None:
    """Run the master until it is requested to stop or has been idle for long.

    Args:
        engine: Starts agents; it may have started them already.
        starter: Forks readers.
    """
    _write_log()
    service = _open_service(engine)
    try:
        with _loopback_socket() as listener, _loopback_socket() as readers:
            readers.listen(_BACKLOG)
            supervisor = AgentSupervisor(service, engine)
            program = _Program(service, supervisor, listener, readers, starter)
            asyncio.run(program.run())
    finally:
        service.close()
    logger.info("ended")


def _loopback_socket() -> socket.socket:
    # asyncio disables Nagle's algorithm only for sockets whose `proto` is TCP. With it, each
    # response (headers, then body) is delayed by 40 ms, until a delayed acknowledgement.
    bound = socket.socket(proto=socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    return bound


def _open_service(engine: Engine) -> Service:
    database = paths.data_dir() / "det.sqlite3"
    if paths.find_full_folder():
        Reserve(paths.data_dir()).give_back()
    try:
        service = Service(Store(database))
        _apply_pools_file(service)
        service.default_storage = default_storage()
        # Stored agents count as away until they register with this master.
        for agent_id in list(service.machine.state.agents):
            service.take(AgentAway(agent_id=agent_id))
    except Exception as error:  # a damaged file may raise anything; the master exits
        engine.dismiss()
        logger.exception("the database cannot be used")
        if isinstance(error, DetError):  # the message has the reason, such as another version
            sys.exit(str(error))
        if full := paths.find_full_folder():
            sys.exit(full)
        reason = error_line(error)
        sys.exit(f"{database} cannot be used ({reason}); move it away to begin with an empty one")
    return service


def _apply_pools_file(service: Service) -> None:
    """Set the pools as in pools.yaml; `status` shows problems of that file."""
    try:
        found = read_pools()
        pools = [pool.model_dump(mode="json") for pool in found.pools] if found else []
        if pools != service.machine.state.pools:
            service.apply(SetPools(pools=pools))
    except DetError as error:
        service.file_problems = str(error).splitlines()
        for problem in service.file_problems:
            logger.error("the pools stay as they were: %s", problem)


class _Program:
    """The running master.

    Args:
        service: Its service.
        supervisor: Keeps its agents running.
        listener: The socket of its HTTP server.
        readers: The socket of its reader.
        starter: Starts readers.
    """

    def __init__(
        self,
        service: Service,
        supervisor: AgentSupervisor,
        listener: socket.socket,
        readers: socket.socket,
        starter: ReaderStarter,
    ) -> None:
        self._service = service
        self._listener = listener
        self._info = _describe_master(listener, readers, service.default_storage)
        self._reader = ReaderProcess(
            readers, self._info.token, starter, on_problem=self._note_reader_problem
        )
        service.commits.call(self._reader.tell_commit)
        access = self._access = service.access
        self._agent_listener = AgentListener(service, access, self._info.data_dir)
        self._clusters = Clusters(
            service, access, self._agent_listener.open, self._agent_listener.close_unneeded
        )
        self._alerts = Alerts(service)
        self._trackers = Trackers(service)
        self._app = create_app(
            service,
            self._info,
            request_stop=self._request_stop,
            more_routes=[
                access_routes(service, access, self._agent_listener),
                upload_routes(service, self._agent_listener.inbox),
                joined_cluster_routes(self._clusters),
                check_routes(self._agent_listener.checks),
                alert_routes(service, self._alerts),
                tracker_routes(service, self._trackers),
                disk_routes(service),
                reader_routes(service, self._reader),
            ],
        )
        self._server = Server(self._app, on_started=self._announce)
        self._supervisor = supervisor
        self._stop_requested = asyncio.Event()
        self._everything = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop, False)
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        stop = asyncio.create_task(self._stop_requested.wait())
        reading = asyncio.create_task(self._reader.run())
        others = [
            asyncio.create_task(self._agent_listener.consoles.keep_current()),
            asyncio.create_task(self._agent_listener.checks.keep_cuts_current()),
            asyncio.create_task(self._listen_to_agents()),
            asyncio.create_task(self._supervisor.run()),
            asyncio.create_task(self._clusters.run()),
            asyncio.create_task(self._stop_when_idle(self._app)),
            asyncio.create_task(self._stay_findable()),
            asyncio.create_task(self._follow_clock(ClockWatch())),
            asyncio.create_task(self._let_trials_grow()),
            asyncio.create_task(
                keep_trimmed(
                    paths.master_output().name,
                    paths.reader_log().name,
                    "bridge-*.log",
                    TRACKERS_LOG,
                )
            ),
            asyncio.create_task(consult(self._service, Samplers())),
            asyncio.create_task(delete(self._service)),
            asyncio.create_task(self._alerts.outbox.run()),
            asyncio.create_task(self._trackers.outbox.run()),
            asyncio.create_task(clean_up(self._service)),
            asyncio.create_task(keep_series(self._service)),
            asyncio.create_task(DiskWatch(self._service).run()),
        ]
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        for task in [stop, *others]:
            task.cancel()
        await asyncio.gather(stop, *others, return_exceptions=True)
        try:
            await shut_down(
                self._service, self._supervisor, self._clusters, everything=self._everything
            )
        finally:
            reading.cancel()  # last, because pages show how trials end
            await asyncio.gather(reading, return_exceptions=True)
            _remove_file(self._info)
            self._server.should_exit = True
            await self._agent_listener.close()
            await serving
            transfers.stop()  # threads that wait for a bucket would delay the end

    async def _listen_to_agents(self) -> None:
        """Listen for agents of other computers, if there are any; retry until it succeeds."""
        while self._access.needs_port(time.time()):
            try:
                await self._agent_listener.open()
            except DetError as error:  # the port is taken, for example
                if not self._service.listener_problem:
                    logger.error("%s", error)
                self._service.listener_problem = str(error)
            else:
                self._agent_listener.close_soon()  # in case all agents were removed
                break
            await asyncio.sleep(_LISTEN_S)
        self._service.listener_problem = ""

    def _note_reader_problem(self, problem: str) -> None:
        self._service.reader_problem = problem

    def _request_stop(self, everything: bool) -> None:
        logger.info("asked to stop%s", " with everything" if everything else "")
        self._everything |= everything
        self._stop_requested.set()

    def _announce(self) -> None:
        paths.write_private(paths.master_file(), self._info.model_dump_json())
        logger.info("serving at %s, pid=%d", self._info.url, self._info.pid)

    async def _stay_findable(self) -> None:
        """Write the master's file again if it was deleted, as clients find the master by it."""
        while True:
            await asyncio.sleep(_FILE_CHECK_S)
            if self._server.started and not paths.master_file().exists():
                logger.warning("%s was removed: written again", paths.master_file())
                self._announce()

    async def _follow_clock(self, watch: ClockWatch) -> None:
        """Report steps of the system clock to the machine, whose times are on that clock."""
        unreported_s = 0.0
        while True:
            await asyncio.sleep(_CLOCK_CHECK_S)
            if unreported_s := unreported_s + watch.step_s():
                logger.warning("the system clock was set by %+.1f s", unreported_s)
                try:
                    self._service.take(ClockStepped(by_s=unreported_s))
                    unreported_s = 0.0
                except Exception:  # a full disk, for example; it is tried again
                    logger.exception("the step of the clock could not be noted")

    async def _let_trials_grow(self) -> None:
        """Report to the machine when slots have been free for so long that trials may grow."""
        while True:
            await asyncio.sleep(_SETTLE_CHECK_S)
            times = self._service.machine.queue.look_again_at.values()
            if min(times, default=math.inf) <= time.time():
                try:
                    self._service.take(SlotsSettled())
                except Exception:  # a full disk, for example; it is tried again
                    logger.exception("elastic trials could not grow")

    async def _stop_when_idle(self, app: Guard) -> None:
        idle_s = 3600 * idle_hours()
        while (
            min(app.idle_s, self._reader.idle_s) < idle_s
            or has_work(self._service)
            or self._trackers.is_sending  # items for a tracker that cannot be reached are stored
        ):
            await asyncio.sleep(min(_IDLE_CHECK_S, max(0.1, idle_s / 10)))
        logger.info("idle for %g hours", idle_s / 3600)
        self._request_stop(False)


def idle_hours(environ: Mapping[str, str] = os.environ) -> float:
    """Return the number of idle hours after which the master ends."""
    given = environ.get(IDLE_VARIABLE)
    if given is None:
        return _IDLE_HOURS
    with suppress(ValueError):
        if (hours := float(given)) > 0:
            return hours
    logger.error(
        "%s: got %r, expected a number of hours above 0; staying for %g hours",
        IDLE_VARIABLE,
        given,
        _IDLE_HOURS,
    )
    return _IDLE_HOURS


def default_storage(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder for checkpoints whose storage type has no backend here; "" if none."""
    given = environ.get(VARIABLE, "")
    folder = os.path.expanduser(given)
    if given and not os.path.isabs(folder):
        logger.error("%s: got %r, expected an absolute path; it is ignored", VARIABLE, given)
        return ""
    return os.path.normpath(folder) if given else ""


def has_work(service: Service) -> bool:
    """Return whether something runs or can start without a request. Paused experiments cannot."""
    machine = service.machine
    unfinished = machine.state.unfinished_experiments()
    return machine.indexes.any_holds_slots or any(e.state is not State.PAUSED for e in unfinished)


def _describe_master(listener: socket.socket, readers: socket.socket, storage: str) -> MasterInfo:
    return MasterInfo(
        url=_url_of(listener),
        reader_url=_url_of(readers),
        token=secrets.token_urlsafe(32),
        **asdict(ProcessIdentity.of(os.getpid())),
        started_at=time.time(),
        version=__version__,
        protocol=PROTOCOL,
        python=sys.executable,
        data_dir=str(paths.data_dir()),
        checkpoint_storage=storage,
    )


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"http://{host}:{port}"


def _remove_file(info: MasterInfo) -> None:
    """Delete the master's file, unless it was written by a successor."""
    path = paths.master_file()
    try:
        if MasterInfo.model_validate_json(paths.read_private(path)).token == info.token:
            path.unlink()
    except (FileNotFoundError, ValidationError, DetError):
        return


def _write_log() -> None:
    """Write log messages of det_jupyter, uvicorn and asyncio, and warnings, to master.log."""
    path = paths.log_dir() / "master.log"
    handler = PrivateLog(path, maxBytes=LOG_BYTES, backupCount=2, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.captureWarnings(True)
    levels = {
        "det_jupyter": logging.INFO,
        "uvicorn": logging.ERROR,  # uvicorn warns of each bad request, which anyone can send
        "asyncio": logging.WARNING,
        "httpx": logging.WARNING,  # its lines on requests contain addresses of alerts
        "py.warnings": logging.WARNING,
    }
    for name, level in levels.items():
        log = logging.getLogger(name)
        log.addHandler(handler)
        log.setLevel(level)
        log.propagate = False
