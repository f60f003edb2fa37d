"""Hosts to which an address in a configuration must not lead: metadata services of clouds.

They answer any request from this computer, also with credentials of the cloud account that it
belongs to.

    any provider    169.254.0.0/16, fe80::/10 (link-local)
    AWS             fd00:ec2::/32
    Google          fd20:ce::254, metadata.google.internal
    Azure           168.63.129.16
    Alibaba         100.100.100.200
    Oracle          192.0.0.192, fd00:c1::a9fe:a9fe
    Scaleway        fd00:42::42

An IPv4 address can be written in IPv6 (mapped, translated, NAT64, 6to4, Teredo, ISATAP), and as
decimal, octal or hexadecimal numbers. Multicast and unspecified addresses are counted too. Pure.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network

_METADATA = tuple(
    ipaddress.ip_network(each)
    for each in (
        "100.100.100.200", "168.63.129.16", "192.0.0.192", "255.255.255.255", "0.0.0.0/8",
        "fd00:ec2::/32", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42",
    )
)  # fmt: skip
# Short names, which a cloud's own resolver completes.
_NAMES = frozenset(("instance-data", "metadata"))
_ENDINGS = (".internal", ".goog")
# Networks in which the last 32 bits are an IPv4 address: compatible, mapped, translated, NAT64.
_LAST_BITS = tuple(
    map(
        IPv6Network,
        ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),
    )
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the 32 bits before the IPv4 address


def is_reserved(address: str) -> bool:
    """Return whether requests must not be made to this IP address.

    >>> is_reserved("169.254.169.254"), is_reserved("64:ff9b::a9fe:a9fe"), is_reserved("10.0.0.1")
    (True, True, False)
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    forms = [parsed, *(_embedded(parsed) if isinstance(parsed, IPv6Address) else ())]
    return any(map(_is_refused, forms))


def names_reserved(host: str) -> bool:
    """Return whether the host of a URL is reserved, judging by its text; it is not resolved.

    >>> names_reserved("2852039166"), names_reserved("metadata.google.internal.")
    (True, True)
    >>> names_reserved("mlflow.example.org")
    False
    """
    name = host.strip("[]").rstrip(".").lower()
    try:
        return is_reserved(name if ":" in name else socket.inet_ntoa(socket.inet_aton(name)))
    except (OSError, ValueError):
        first = name.partition(".")[0]
        return name in _NAMES or (first in _NAMES and name.endswith(_ENDINGS))


def why_reserved(host: str, resolved: Iterable[str], *, unless: str) -> str:
    """Return why nothing is sent to a host; "": it is not reserved.

    Args:
        resolved: The IP addresses of the host, as far as they are known.
        unless: The setting in which a user can allow any host, for the message.
    """
    address = next(filter(is_reserved, resolved), "")
    if not address and not names_reserved(host):
        return ""
    name = f"{host} ({address})" if address and address != host else host
    return (
        f"the host {name} is one of clouds' metadata, to which nothing is sent unless {unless} "
        "names it"
    )


def _is_refused(address: IPv4Address | IPv6Address) -> bool:
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return True
    return any(address.version == each.version and address in each for each in _METADATA)


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address may contain."""
    bits = int(address)
    last = bits & 0xFFFFFFFF
    is_isatap = (bits >> 32) & 0xFFFFFFFF in _ISATAP
    if address not in (IPv6Address("::"), IPv6Address("::1")) and (
        is_isatap or any(address in each for each in _LAST_BITS)
    ):
        yield IPv4Address(last)
    if address in _LOCAL_NAT64:  # RFC 6052: before and after eight bits that are zero
        yield IPv4Address(((bits >> 64 & 0xFFFF) << 16) | (bits >> 40 & 0xFFFF))
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
