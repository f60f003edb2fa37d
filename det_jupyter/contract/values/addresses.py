"""Addresses that alerts and trackers go to: each is a secret, or names one.

    ${NAME}                            the value of a variable
    file:/path, file:~/path            the first line of a file
    https://host/********-3            an address that the master stores, as it is shown
    https://host/path                  the address itself

The address of a webhook is all that is needed to post to it, so it is shown without its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from det_jupyter.contract.values.text import shortened

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_STORED = re.compile(r"https?://[^/\s?#@]+/\*{8}-([1-9]\d{0,17})", re.ASCII)
_NUMBER = re.compile(r"/\*{8}-([1-9]\d{0,17})")
_FILE = re.compile(r"file:(~?/[^\x00\r\n]+)")
_URL = re.compile(r"https?://[\x21-\x7e]+")
HIDDEN = "********"
_LONGEST = 300  # characters of a message


def variable_of(address: str) -> str | None:
    """Return the variable that an address names; None if it names none.

    >>> variable_of("${SLACK_WEBHOOK}"), variable_of("https://example.org/x")
    ('SLACK_WEBHOOK', None)
    """
    found = _VARIABLE.fullmatch(address)
    return found[1] if found else None


def file_of(address: str) -> str | None:
    """Return the path of the file that an address names; None if it names none."""
    found = _FILE.fullmatch(address)
    return found[1] if found else None


def stored_number(address: str) -> int | None:
    """Return the number in the shown form of a stored address; None for other addresses."""
    found = _STORED.fullmatch(address)
    return int(found[1]) if found else None


def stored_numbers(text: str) -> set[int]:
    """Return the numbers of the stored addresses in a text that contains some.

    >>> sorted(stored_numbers('{"slack": "https://a.org/********-3", "on": "http://b:1/********-12"}'))
    [3, 12]
    """
    return {int(found) for found in _NUMBER.findall(text)}


def is_reference(address: str) -> bool:
    """Return whether a value refers to an address, and is none itself."""
    return any(of(address) is not None for of in (variable_of, file_of, stored_number))


def is_url(address: str) -> bool:
    """Return whether it is an http(s) URL with a host, that is an address itself."""
    if not _URL.fullmatch(address) or stored_number(address) is not None or HIDDEN in address:
        return False
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, for example
        return False


def is_place_only(url: str) -> bool:
    """Return whether a URL has only a host and a port: other parts may be secret.

    >>> is_place_only("http://localhost:5000/"), is_place_only("https://example.org/s/TOKEN")
    (True, False)
    """
    parts = urlsplit(url)
    more = parts.path.strip("/") or parts.query or parts.fragment
    return not has_credentials(url) and not more


def is_in_the_clear(url: str) -> bool:
    """Return whether others can read what is sent to a URL: it is http to another computer.

    >>> is_in_the_clear("http://10.0.0.5:5000"), is_in_the_clear("http://localhost:5000")
    (True, False)
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and not is_here


def has_credentials(url: str) -> bool:
    """Return whether a URL has a name or password, which is sent with each request."""
    return "@" in urlsplit(url).netloc


def why_not_in_the_clear(url: str, shown_as: str) -> str:
    """Return why no credentials are sent to a URL that is in the clear, and what to do.

    Args:
        shown_as: The URL without what may be secret in it.
    """
    parts = urlsplit(url)
    return (
        f"got {shown_as}, to which a name and password or a token would be sent so that they can "
        f"be read on the way; expected https://, or a tunnel: ssh -L 5000:localhost:"
        f"{parts.port or 80} {parts.hostname}, and http://localhost:5000"
    )


def shown(address: str, number: int | None = None) -> str:
    """Return an address as it may be shown: a reference as it is, a URL without its path.

    Args:
        address: Any form of an address.
        number: The number under which the master stores a URL.

    >>> shown("https://ann:x@hooks.slack.com/services/T/B/x"), shown("${HOOK}")
    ('https://hooks.slack.com/********', '${HOOK}')
    """
    if is_reference(address):
        return address
    if not is_url(address):
        return HIDDEN
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    end = "" if number is None else f"-{number}"
    return f"{parts.scheme}://{host}{port}/{HIDDEN}{end}"


def secrets_in(address: str) -> list[str]:
    """Return the parts of an address that no message may contain, as libraries write them.

    >>> secrets_in("https://ann:x@example.org/s/TOKEN/")
    ['ann', 'x', 'ann', 'x', 'ann:x@example.org/s/TOKEN', '/s/TOKEN/']
    """
    parts = urlsplit(address)
    given = [each for each in (parts.username, parts.password) if each]
    path = parts.path.rstrip("/")
    hidden = [f"{parts.netloc}{path}", f"{path}/"] if path and parts.netloc else []
    return [*given, *map(unquote, given), *hidden]


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a library's message on one line, shortened, with these texts masked."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return shortened(text, _LONGEST)
