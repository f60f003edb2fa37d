"""How a program reaches the user's master: finds it, starts it, and sends it requests.

The first program that needs the master starts it. The master holds a lock, so that there is only
one: if two programs start it at once, the second process exits and both find the first.

A Session sends requests over HTTP with the master's token. It returns the answers as JSON, which
`client` interprets, and raises the master's refusals as our errors.
"""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from pydantic import ValidationError

from det_jupyter import errors
from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.daemons import spawn_master
from det_jupyter.contract.host.locks import holder_of, is_locked
from det_jupyter.contract.host.processes import is_frozen
from det_jupyter.contract.messages import BACKGROUND, PROTOCOL, MasterInfo
from det_jupyter.errors import DetError, MasterStopped, MasterUnreachable, ProtocolMismatch

logger = logging.getLogger(__name__)

API = "/api/v1"
_SUCCESSOR_S = 10.0
# Another master took over the port, or this one is ending: the request was not carried out.
_RETRY_STATUS = (httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE)
# The master answers in milliseconds; it may wait some seconds for its first agent at a submission.
TIMEOUT = httpx.Timeout(30.0, connect=2.0)


def must_be_awake(info: MasterInfo) -> None:
    """Check that the master is not stopped (SIGSTOP): its port would still accept requests.

    Raises:
        MasterUnreachable: It is stopped; the message has the command that continues it.
    """
    if info.process.is_frozen:
        command = f"kill -CONT {info.pid}"
        raise MasterUnreachable(
            f"the det_jupyter master (process {info.pid}) is stopped, and what trains goes on; "
            f"`{command}` lets it go on, or `kill -KILL {info.pid}` ends it and the next command "
            "starts another; then repeat this command",
            command=command,
        )


class Session:
    """Sends requests to the master, and finds the next master after a restart.

    Args:
        info: Address and token of the master.
        locate: Returns address and token of the present master; called when the former one does
            not answer. None: requests then fail.
        transport: For tests: an httpx transport instead of the network.
        is_background: Whether no user waits for the requests: with no others, a master ends after
            some hours.
    """

    def __init__(
        self,
        info: MasterInfo,
        *,
        locate: Callable[[], MasterInfo] | None = None,
        transport: httpx.BaseTransport | None = None,
        is_background: bool = False,
    ) -> None:
        self._headers = {BACKGROUND: "1"} if is_background else {}
        self._locate = locate
        self._transport = transport
        self._lock = threading.Lock()
        self._closers: list[weakref.finalize[..., Session]] = []
        self._connect(info)

    def _connect(self, info: MasterInfo) -> None:
        self.info = info
        self._http = httpx.Client(
            base_url=info.url + API,
            headers={**self._headers, "Authorization": f"Bearer {info.token}"},
            timeout=TIMEOUT,
            transport=self._transport,
            trust_env=False,  # no proxy on the loopback
            verify=False,  # plain HTTP: building an SSL context would take 20-50 ms
        )
        # A session that is dropped without close(), as notebooks do, leaves no open socket.
        self._closers.append(weakref.finalize(self, self._http.close))

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON answer to GET; None-valued parameters are left out."""
        return self._request("GET", path, params=_without_none(params), repeatable=True)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> Any:
        """Return the JSON answer to POST.

        Args:
            repeatable: Whether to send the request again if a master was killed before it
                answered, though it may have carried the request out.

        Raises:
            DetError: The class that the master's refusal names.
            MasterUnreachable: There is no answer.
        """
        return self._request("POST", path, json=body, repeatable=repeatable)

    def put(self, path: str, body: Any) -> Any:
        """Return the JSON answer to PUT, which is sent again if a master was killed meanwhile."""
        return self._request("PUT", path, json=body, repeatable=True)

    def delete(self, path: str) -> Any:
        """Return the JSON answer to DELETE."""
        return self._request("DELETE", path, repeatable=False)

    def close(self) -> None:
        """Close the connections."""
        for close in self._closers:
            close()

    def _request(self, method: str, path: str, *, repeatable: bool, **kwargs: Any) -> Any:
        must_be_awake(self.info)
        before = self.info
        try:
            response = self._http.request(method, path, **kwargs)
        except UnicodeEncodeError as error:
            part = error.object[max(0, error.start - 20) : error.end + 20]
            raise DetError(f"half a character cannot be sent: {part!a}; write it whole") from None
        except httpx.TransportError as error:
            must_be_awake(self.info)
            if isinstance(error, httpx.ReadTimeout):
                self.relocate()
                if self.info == before:  # still the same master: a retry would time out as well
                    raise _unreachable(error, before) from None
            if not (repeatable or _was_not_sent(error)):
                raise _unreachable(error, before, may_be_carried_out=True) from None
            if self._locate is None:
                raise _unreachable(error, before) from None
            response = self._retry(method, path, repeatable=repeatable, **kwargs)
        if response.status_code in _RETRY_STATUS and self._locate is not None:
            response = self._retry(method, path, repeatable=repeatable, **kwargs)
        if response.is_error:
            raise _error_of(response)
        return response.json()

    def _retry(self, method: str, path: str, *, repeatable: bool, **kwargs: Any) -> httpx.Response:
        """Send the request to the present master; retry while a master that ended seems alive."""
        deadline = time.monotonic() + _SUCCESSOR_S
        while True:
            self.relocate()
            try:
                response = self._http.request(method, path, **kwargs)
                if response.status_code not in _RETRY_STATUS or time.monotonic() > deadline:
                    return response
            except httpx.TransportError as error:
                is_uncertain = not (repeatable or _was_not_sent(error))
                if is_uncertain or time.monotonic() > deadline:
                    raise _unreachable(error, self.info, may_be_carried_out=is_uncertain) from None
            time.sleep(0.05)

    def relocate(self) -> None:
        """Call `locate`, and connect to the master that it returns."""
        if self._locate is None:
            return
        with self._lock:
            info = self._locate()
            if info != self.info:  # if equal, another thread has connected already
                self._connect(info)  # the old one stays open: others may be using it


def _unreachable(
    error: Exception, asked: MasterInfo, *, may_be_carried_out: bool = False
) -> MasterUnreachable:
    """Return the error for a request that the master has not answered."""
    advice = "see `python -m det_jupyter.master status`"
    if may_be_carried_out:
        advice = "the request may have been carried out: check, and repeat it if it was not"
    elif isinstance(error, httpx.ReadTimeout) and asked.process.is_here:
        advice = (
            f"`kill -KILL {asked.pid}` ends it, what trains goes on, and the next command starts "
            "another; then repeat this command"
        )
    return MasterUnreachable(
        f"the det_jupyter master at {asked.url} does not answer ({error}); {advice}"
    )


def _was_not_sent(error: httpx.TransportError) -> bool:
    """Return whether the request was not sent at all."""
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))


def _without_none(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value is not None}


def _error_of(response: httpx.Response) -> DetError:
    """Return the error for an error status, of the class that the answer names."""
    try:
        body = response.json()
        name, problems = body["error"], [errors.Problem(**each) for each in body["problems"]]
    except (ValueError, KeyError, TypeError):
        return DetError(f"the master answered {response.status_code}: {response.text[:200]}")
    kind = getattr(errors, name, DetError)
    if kind is errors.ConfigError:
        return errors.ConfigError(problems)
    texts = list(map(str, problems))
    if kind is errors.CaptureError:
        return errors.CaptureError(texts)
    if kind is errors.NotFound:
        what, number = body.get("what", ""), body.get("number", 0)
        return errors.NotFound("\n".join(texts), what=what, number=number)
    if not (isinstance(kind, type) and issubclass(kind, DetError)):
        kind = DetError
    return kind("\n".join(texts))


_POLL_S = 0.02
_SAY_AFTER_S = 20.0
_MOST_STARTS = 5  # of masters that end at once, because another one that was ending had the lock


def find_master() -> MasterInfo | None:
    """Return address and token of the running master; None when there is none.

    Raises:
        ProtocolMismatch: The running master has another protocol version.
        MasterUnreachable: It runs on another computer.
    """
    info = announced_master()
    if info is not None and info.protocol != PROTOCOL:
        command = f"{sys.executable} -m det_jupyter.master restart"
        raise ProtocolMismatch(
            f"the running master (process {info.pid}) is det_jupyter {info.version} (protocol "
            f"{info.protocol}), this is {__version__} (protocol {PROTOCOL}); `{command}` replaces "
            "it by one of this version, and what trains goes on",
            command=command,
        )
    return info


def announced_master() -> MasterInfo | None:
    """Return what `find_master` does, for a master of any protocol version.

    Raises:
        ProtocolMismatch: A master runs, and its file cannot be parsed.
        MasterUnreachable: It runs on another computer.
    """
    try:
        text = paths.read_private(paths.master_file())
    except FileNotFoundError:
        return None
    try:
        info = MasterInfo.model_validate_json(text)
    except ValidationError:
        if not is_locked(paths.master_lock()):
            return None
        raise ProtocolMismatch(
            f"{paths.master_file()} was written by another version of det_jupyter than this one "
            f"({__version__}); end the process that it names, and try again"
        ) from None
    return info if _is_alive(info) else None


def _is_elsewhere() -> bool:
    holder = holder_of(paths.master_lock())
    return holder is not None and not holder.is_here


def _is_alive(info: MasterInfo) -> bool:
    """Return whether the master's process is alive, and not another one with its pid.

    Raises:
        MasterUnreachable: It runs on another computer.
    """
    if not info.birth:  # a master of an older version, which did not store it
        return is_locked(paths.master_lock())
    if not info.process.is_here and _is_elsewhere():
        raise MasterUnreachable(
            f"the det_jupyter master runs on {info.host} (process {info.pid}) and cannot be "
            f"reached from here; {paths.data_dir()} is on a drive that both computers have: set "
            f"{paths.HOME_VARIABLE} to a folder of this computer's own"
        )
    return info.process.is_alive


def ensure_master() -> MasterInfo:
    """Return address and token of the running master; start one when there is none.

    It waits as long as a master is starting: that takes a second, and minutes on a busy computer.

    Raises:
        MasterUnreachable: It did not start; the message ends with the last lines of its log.
    """
    if info := find_master():
        return info
    status: int | None = None
    for _ in range(_MOST_STARTS):
        process = _spawn_master()
        with waiting_for("the det_jupyter master, which is starting") as still:
            while (status := process.poll()) is None or (
                status == 0 and is_locked(paths.master_lock())  # another one starts or ends
            ):
                if info := find_master():
                    return info
                still(process.pid if status is None else holder_of_lock())
        if info := find_master():
            return info
        if status:
            break
    if full := paths.find_full_folder():  # with a full disk the log is empty
        raise MasterUnreachable(f"the det_jupyter master did not start: {full}")
    raise MasterUnreachable(
        f"the det_jupyter master did not start (exit status {status}).\n{_log_tail()}"
    )


def _spawn_master() -> subprocess.Popen[bytes]:
    try:
        return spawn_master()
    except OSError as error:
        raise MasterUnreachable(
            f"the det_jupyter master cannot be started: {paths.find_full_folder() or error}"
        ) from None


def holder_of_lock() -> int:
    """Return the pid of the process here that holds the master's lock; 0: it is not known."""
    holder = holder_of(paths.master_lock())
    return holder.pid if holder and holder.is_here else 0


@contextmanager
def waiting_for(what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function to call in each turn of a loop that waits for a master to start or end.

    The function takes the pid of the master (0: not known) and pauses for a moment. If the wait
    takes long, it prints `what` once.

    Raises:
        MasterUnreachable: The process is stopped (SIGSTOP), so that it neither starts nor ends.
    """
    say_at = time.monotonic() + _SAY_AFTER_S

    def pause(pid: int) -> None:
        nonlocal say_at
        if pid and is_frozen(pid):
            raise MasterUnreachable(
                f"{what} (process {pid}), is stopped; `kill -CONT {pid}` lets it go on, or "
                f"`kill -KILL {pid}` ends it; then repeat this command",
                command=f"kill -CONT {pid}",
            )
        if time.monotonic() > say_at:
            say_at = math.inf
            logger.warning(
                "still waiting for %s%s; if it does not get on, see %s",
                what, f" (process {pid})" if pid else "", paths.log_dir(),
            )  # fmt: skip
        time.sleep(_POLL_S)

    yield pause


def _log_tail(num_lines: int = 15) -> str:
    log = paths.master_output()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"Last lines of {log}:", *lines[-num_lines:]])


def connect() -> Session:
    """Return a session with the user's master, which is started whenever there is none."""
    return Session(ensure_master(), locate=ensure_master)


def require_master(line: str, *, may_revive: bool = False) -> MasterInfo:
    """Return address and token of the running master; raise when there is none.

    Args:
        line: The command that starts one, for the error message.
        may_revive: Whether to start a master that was killed (not one that was shut down).

    Raises:
        MasterStopped: No master runs.
    """
    if info := find_master():
        return info
    if may_revive and paths.master_file().exists():  # a master that shuts down removes its file
        return ensure_master()
    raise MasterStopped(f"no det_jupyter master runs; `{line}` starts one")
