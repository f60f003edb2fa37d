"""Connects the bridge to a Ray cluster, or finds out in seconds why it cannot.

`ray.init` waits for minutes for an address that does not answer, and honours no signal meanwhile.
So each cause is checked before, the fastest first: the name, the port, the token, the versions,
and whether this computer is a node. If Ray waits nevertheless, a thread ends the process.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from det_jupyter._version import __version__
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.values.text import error_line
from det_jupyter.errors import DetError

MODE_VARIABLE = "RAY_AUTH_MODE"
_TOKEN_VARIABLE, _TOKEN_PATH_VARIABLE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_PORT_S = 3.0  # how long the port may take to answer
_CALL_S = 5.0  # how long Ray may take to answer the first request
_INIT_S = 8.0  # and to connect
_METADATA = (b"CLUSTER_METADATA", b"cluster")  # where Ray keeps its versions
_OTHER_PORTS = {8265: "the dashboard's port", 10001: "the port of Ray's client server"}
_TLS_VARIABLE = "RAY_USE_TLS"
_SLOW_MODULE = "rfc3987_syntax"
_ADMITTED = 7  # exit status
_SETTINGS = 4  # the type of the first frame that both sides of HTTP/2 send
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])


def check_port(config: ClusterConfig) -> None:
    """Check that a server of gRPC, which Ray uses, listens at the cluster's address.

    Raises:
        DetError: No such server answers there.
    """
    host, port = config.host_and_port
    try:
        with socket.create_connection((host, port), timeout=_PORT_S) as probe:
            if not os.environ.get(_TLS_VARIABLE) and not _speaks_http2(probe):
                raise DetError(_no_head(config))
    except socket.gaierror:
        raise DetError(f"{config.address}: there is no computer of the name {host}") from None
    except OSError as error:
        is_silent = isinstance(error, TimeoutError) and error.errno is None
        why = f"no answer within {_PORT_S:g} s" if is_silent else error.strerror
        raise DetError(
            f"{config.address}: nothing can be reached at port {port} of {host} ({why}); give the "
            "address of the cluster's head, as `ray start --head` prints it, and see that no "
            "firewall closes the port"
        ) from None


def _speaks_http2(probe: socket.socket) -> bool:
    try:
        probe.sendall(_HELLO)
        answer = probe.recv(9)
    except OSError:
        return False
    return len(answer) > 3 and answer[3] == _SETTINGS


def _no_head(config: ClusterConfig) -> str:
    _, port = config.host_and_port
    found = f"{config.address}: what listens there does not answer as the head of a Ray cluster"
    if port in _OTHER_PORTS:
        found += f"; {port} is {_OTHER_PORTS[port]}, and the head's is 6379 by default"
    return found


def connect(config: ClusterConfig, namespace: str, give_up: Callable[[str], None]) -> Any:
    """Connect to the cluster; return the module ray.

    Args:
        config: The cluster.
        namespace: The namespace of the actors.
        give_up: Called in another thread with a sentence, if Ray does not answer; must end the
            process.

    Raises:
        DetError: The connection is not possible; the message has the remedy.
    """
    check_port(config)
    # Ray reads the mode once, when it is imported.
    os.environ[MODE_VARIABLE] = "disabled" if config.without_token else "token"
    if config.token_file:
        _use_token_of(config.token_file)
    ray = _import_ray()
    host, port = config.host_and_port
    with _time_limit(_CALL_S, _no_head(config), give_up):
        if not config.without_token:
            _check_need_of_token(config)
        versions = _read_versions(ray, config)
    _check_versions(config, versions, ray.__version__)
    os.environ["RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL"] = "minor"
    needed = (
        f"this computer has to be a node of the cluster: run `ray start --address={host}:{port} "
        "--num-cpus=0 --num-gpus=0` here"
    )
    too_slow = f"{config.address}: Ray answers, but has not connected within {_INIT_S:g} s; "
    with _time_limit(_INIT_S, too_slow + needed, give_up):
        try:
            ray.init(
                address=f"{host}:{port}",
                namespace=namespace,
                log_to_driver=False,
                configure_logging=False,
            )
        except Exception as error:  # Ray raises errors of many kinds
            raise DetError(
                f"{config.address}: Ray cannot connect ({error_line(error)}); {needed}"
            ) from None
    return ray


def _import_ray() -> Any:
    # Ray imports jsonschema, which compiles a grammar of internationalized addresses if this is
    # installed (as Jupyter has it): 1.1 s CPU of 1.5, for a check that is made of none here.
    sys.modules.setdefault(_SLOW_MODULE, None)  # type: ignore[arg-type]  # "it is not installed"
    try:
        import ray
    except ImportError as error:
        raise DetError(
            f"{sys.executable} has no Ray ({error}): run `{sys.executable} -m pip install "
            "ray` with the cluster's version, or name an interpreter that has it: "
            "--bridge-python FILE"
        ) from None
    return ray


def _use_token_of(file: str) -> None:
    """Have Ray read the token from this file, when it sends one."""
    if not os.access(file, os.R_OK):
        raise DetError(f"the token's file, {file}, cannot be read")
    os.environ.pop(_TOKEN_VARIABLE, None)
    os.environ[_TOKEN_PATH_VARIABLE] = file


def _has_token(config: ClusterConfig) -> bool:
    return bool(
        config.token_file
        or os.environ.get(_TOKEN_VARIABLE)
        or os.environ.get(_TOKEN_PATH_VARIABLE)
        or Path("~/.ray/auth_token").expanduser().exists()
    )


def _check_need_of_token(config: ClusterConfig) -> None:
    """Check that the cluster requires its token, and that there is a token on this computer.

    The first request has a wrong token, so that the right one is not sent to a cluster that needs
    none. A forked process sends it, because Ray keeps the first token of a process, and loading
    Ray in a new process would take seconds.

    Raises:
        DetError: The cluster accepts any token, or there is no token here.
    """
    if not (child := os.fork()):
        try:
            os.environ[_TOKEN_VARIABLE] = "none"
            with suppress(Exception):  # other ones are reported by the next request
                _get_metadata(config)
                os._exit(_ADMITTED)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == _ADMITTED:
        raise DetError(
            f"{config.address}: the cluster admits everyone who reaches this port, who can then "
            "run programs as you and read what you train; start it with tokens "
            f"({MODE_VARIABLE}=token), or accept that: --without-token"
        )
    if not _has_token(config):
        raise DetError(_token_problem(config, "needs a token, and there is none here"))


def _get_metadata(config: ClusterConfig) -> bytes | None:
    host, port = config.host_and_port
    gcs_client = import_module("ray._raylet").GcsClient
    found: bytes | None = gcs_client(address=f"{host}:{port}").internal_kv_get(
        *_METADATA, timeout=_CALL_S
    )
    return found


def _read_versions(ray: Any, config: ClusterConfig) -> dict[str, str]:
    """Return the versions that the cluster was started with."""
    try:
        found = _get_metadata(config)
    except ray.exceptions.AuthenticationError:
        if config.without_token:
            raise DetError(
                f"{config.address}: the cluster needs a token; leave --without-token out"
            ) from None
        raise DetError(_token_problem(config, "refuses the token")) from None
    except Exception as error:  # Ray raises errors of many kinds
        raise DetError(f"{_no_head(config)} ({error_line(error)})") from None
    return dict(json.loads(found)) if found else {}


def _token_problem(config: ClusterConfig, what: str) -> str:
    return (
        f"{config.address}: the cluster {what}; copy the head's ~/.ray/auth_token to the "
        f"same place here, or name its copy: --token-file FILE ({_TOKEN_VARIABLE} counts only "
        "if the master was started with it)"
    )


def _check_versions(config: ClusterConfig, theirs: dict[str, str], our_ray: str) -> None:
    their_ray = theirs.get("ray_version", our_ray)
    their_python = theirs.get("python_version", platform.python_version())
    minor = ".".join(their_python.split(".")[:2])
    if their_ray != our_ray or minor != ".".join(platform.python_version_tuple()[:2]):
        raise DetError(
            f"{config.address}: the cluster runs Ray {their_ray} with Python {their_python}, and "
            f"{sys.executable} has Ray {our_ray} with Python {platform.python_version()}; make an "
            f"environment with Python {minor} and `pip install ray=={their_ray} "
            f"det-jupyter=={__version__}`, and name its interpreter: "
            "--bridge-python FILE"
        )


@contextmanager
def _time_limit(limit_s: float, why: str, give_up: Callable[[str], None]) -> Iterator[None]:
    timer = threading.Timer(limit_s, give_up, [why])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
