"""Sends one alert: a POST request, or a command. Error messages never contain an address.

A URL may come from another user's configuration, so requests are restricted: redirects are not
followed, only the status of the answer is read, and metadata services of clouds
(contract/values/reserved_hosts.py) are refused, unless the user has named them in alerts.yaml. The
host is resolved once, and the connection is made to the address that was checked.

Commands come from alerts.yaml only. They are started without a shell, and get the alert as JSON on
their standard input and in environment variables.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from det_jupyter._version import __version__
from det_jupyter.contract.host.paths import ALERTS_FILE
from det_jupyter.contract.messages import AlertNews
from det_jupyter.contract.values.addresses import shown
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.reserved_hosts import why_reserved
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import DetError
from det_jupyter.master.delivery.programs import run_program
from det_jupyter.master.service.address_checks import find_webhook, is_named_webhook, resolve
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.stored_alerts import Destination

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

_URGENT = (AlertKind.FAILED, AlertKind.HANG, AlertKind.NAN, AlertKind.DISK)
_TAGS = {
    AlertKind.FAILED: "x",
    AlertKind.HANG: "hourglass",
    AlertKind.NAN: "warning",
    AlertKind.DISK: "floppy_disk",
    AlertKind.RECOVERED: "recycle",
    AlertKind.ENDED: "white_check_mark",
}
_PASSING = (408, 425, 429)  # answers after which the same request may succeed later
LIMIT_S = 10.0  # seconds for an attempt
_MOST_ADDRESSES = 3  # most addresses of a host that are tried
_REASONS = {
    errno.ECONNREFUSED: ": it refuses connections",
    errno.ENETUNREACH: ": its network cannot be reached",
    errno.EHOSTUNREACH: ": its computer cannot be reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A failed attempt.

    Args:
        problem: The reason, a sentence without secrets.
        is_final: Whether further attempts are pointless.
        asked_s: Seconds that the receiver requests to wait.
    """

    problem: str
    is_final: bool = False
    asked_s: float = 0.0


async def send(
    addresses: Addresses, destination: Destination, news: AlertNews
) -> FailedAttempt | None:
    """Send an alert; return the failure, None if it was sent."""
    alert = destination.alert
    try:
        async with asyncio.timeout(LIMIT_S):
            if alert.command is not None:
                return await _run(alert.command, news)
            reference = getattr(alert, alert.way)
            url = await find_webhook(addresses, reference, destination.environment)
            is_named = await is_named_webhook(addresses, url)
            return await _post(
                *request_of(alert.way, url, news), shown_as=shown(url), is_named=is_named
            )
    except TimeoutError:
        return FailedAttempt(problem=f"no answer within {LIMIT_S:g} s")
    except DetError as error:
        return FailedAttempt(problem=str(error))
    except Exception as error:  # its text may contain the address
        logger.error("an alert could not be sent: %s", type(error).__name__)
        return FailedAttempt(problem=f"it could not be sent ({type(error).__name__})")


async def _post(
    url: str, body: dict[str, Any], *, shown_as: str, is_named: bool
) -> FailedAttempt | None:
    import httpx  # takes 0.1 s to import, and most masters send nothing

    target = httpx.URL(url)
    proxy = None if proxy_bypass(target.host) else getproxies().get(target.scheme)
    hosts = [target.host]  # a proxy resolves it
    if not is_named and (why := why_reserved(target.host, (), unless=ALERTS_FILE)):
        return FailedAttempt(problem=why, is_final=True)
    if not proxy:
        try:
            hosts = await resolve(target.host)
        except (OSError, UnicodeError):
            return FailedAttempt(problem=f"the host {target.host} is not known")
        if not is_named and (why := why_reserved(target.host, hosts, unless=ALERTS_FILE)):
            return FailedAttempt(problem=why, is_final=True)
    headers = {"user-agent": f"det_jupyter/{__version__}", "host": target.netloc.decode("ascii")}
    async with httpx.AsyncClient(
        trust_env=False, proxy=proxy, timeout=LIMIT_S, headers=headers
    ) as client:
        problem = f"{shown_as} cannot be reached"
        for host in hosts[:_MOST_ADDRESSES]:
            request = client.build_request(
                "POST",
                target.copy_with(host=host),
                json=body,
                extensions={"sni_hostname": target.host},
            )
            try:
                return _judge(await _status_of(client, request), shown_as)
            except httpx.ConnectError as error:
                problem = f"{shown_as} cannot be reached{_reason(error)}"
            except httpx.HTTPError as error:
                return FailedAttempt(problem=f"{shown_as} did not answer ({type(error).__name__})")
    return FailedAttempt(problem=problem)


async def _status_of(client: httpx.AsyncClient, request: httpx.Request) -> tuple[int, str | None]:
    """Send a request; return the status, and the header Retry-After. The body is not read."""
    answer = await client.send(request, stream=True, follow_redirects=False)
    try:
        return answer.status_code, answer.headers.get("retry-after")
    finally:
        await answer.aclose()


def _judge(answer: tuple[int, str | None], shown_as: str) -> FailedAttempt | None:
    status, retry_after = answer
    if 200 <= status < 300:
        return None
    problem = f"{shown_as} answered {status}"
    if 300 <= status < 400:
        problem += ", a redirect; give the address to which it leads"
        return FailedAttempt(problem=problem, is_final=True)
    asked_s = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    return FailedAttempt(problem=problem, is_final=not is_passing(status), asked_s=asked_s)


def _reason(error: Exception) -> str:
    """Return why a connection could not be made, as far as that is known, without an address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ": its certificate is not accepted"
        if isinstance(cause, OSError) and cause.errno in _REASONS:
            return _REASONS[cause.errno]
        cause = cause.__cause__ or cause.__context__
    return ""


async def _run(command: Sequence[str], news: AlertNews) -> FailedAttempt | None:
    try:
        status = await run_program(
            command,
            news.model_dump_json().encode() + b"\n",
            output=asyncio.subprocess.DEVNULL,
            cwd=os.path.expanduser("~"),
            variables=variables_of(news),
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "a word of it cannot be passed to a program"
        return FailedAttempt(problem=f"the command cannot be started: {reason}", is_final=True)
    return (
        None if status == 0 else FailedAttempt(problem=f"the command ended with status {status}")
    )


# forms


def request_of(way: str, url: str, news: AlertNews) -> tuple[str, dict[str, Any]]:
    """Return the URL and the JSON body of the POST request.

    Args:
        way: The kind of service: slack, ntfy or webhook.
    """
    match way:
        case "slack":
            text = "\n".join(filter(None, (f"*{_escaped(news.title)}*", _escaped(news.text))))
            return url, {"text": text}
        case "ntfy":
            parts = urlsplit(url)
            root, _, topic = parts.path.strip("/").rpartition("/")
            server = urlunsplit(parts._replace(path=f"/{root}"))
            return server, {
                "topic": topic,
                "title": news.title,
                "message": news.text or news.title,
                "priority": 4 if news.event in _URGENT else 3,
                "tags": [_TAGS[news.event]],
            }
        case _:
            return url, news.model_dump(mode="json")


def _escaped(text: str) -> str:
    """Escape text that Slack would parse as a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*", "∗")


def variables_of(news: AlertNews) -> Mapping[str, str]:
    """Return the environment variables that a command gets."""
    return {
        "DET_ALERT_EVENT": news.event,
        "DET_ALERT_EXPERIMENT": str(news.experiment_id),
        "DET_ALERT_TRIAL": "" if news.trial_id is None else str(news.trial_id),
        "DET_ALERT_TITLE": printable(news.title),
        "DET_ALERT_TEXT": printable(news.text),
    }


def is_passing(status: int) -> bool:
    """Return whether a later attempt may succeed after an HTTP status."""
    return status >= 500 or status in _PASSING
