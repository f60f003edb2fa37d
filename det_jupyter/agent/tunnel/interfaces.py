"""The network interface over which the ranks of this computer reach those of others."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import psutil

from det_jupyter.contract.messages import GangLink, GangNetwork
from det_jupyter.errors import LaunchError

_PORT = 9  # any port: nothing is sent


def find_network(link: GangLink, groups: Sequence[int], *, master: str = "") -> GangNetwork:
    """Return the addresses of a gang's computers, and this computer's interface to the others.

    The interface is the one that the link names, or else the one with the route to the chief's
    computer; on the chief's computer, the one with the route to the first other computer.

    Args:
        groups: The group ranks of this computer's agents.
        master: Address of the master's computer; "": this is it.

    Raises:
        LaunchError: The other computer's address is not found, no interface leads there, or the
            interface of the link does not exist.
    """
    others = [address for group, address in enumerate(link.addresses) if group not in groups]
    own, interfaces = own_address(others[0] or master), _interfaces()
    if link.interface and link.interface not in interfaces:
        raise LaunchError(
            f"dtrain_network_interface: got {link.interface!r}, but {socket.gethostname()} has "
            f"only the network interfaces {', '.join(interfaces)}; name one that all computers of "
            "the pool have, or leave it out"
        )
    return GangNetwork(
        addresses=[address or master or own for address in link.addresses],
        interface=link.interface or interface_of(own, interfaces),
    )


def used_interfaces(network: GangNetwork, variables: Mapping[str, str]) -> list[str]:
    """Return the interfaces of this computer over which its ranks reach the others.

    Args:
        network: The interface that was chosen for them.
        variables: The environment variables that the user gives the ranks. Those of NCCL and gloo
            override the choice; NCCL's has beginnings of names, or `=` and names, or `^` and
            excluded ones.
    """
    names = sorted(_interfaces())
    given = variables.get("GLOO_SOCKET_IFNAME") or variables.get("NCCL_SOCKET_IFNAME", "")
    rule, words = given[:1], [word for word in given.lstrip("=^").split(",") if word]
    if not words:
        return [network.interface]
    if "GLOO_SOCKET_IFNAME" in variables or rule == "=":
        return [name for name in names if name in words] or [network.interface]
    is_meant = [name for name in names if name.startswith(tuple(words)) != (rule == "^")]
    if rule == "^":  # NCCL takes the one that suits, which is most likely the route's
        return [network.interface] if network.interface in is_meant else is_meant[:1]
    return is_meant or [network.interface]


def own_address(other: str) -> str:
    """Return this computer's address in the network that leads to another address.

    Raises:
        LaunchError: The address is not found, or there is no route to it.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(other, _PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            address: str = probe.getsockname()[0]
            # IPv4 in the notation of IPv6; an address of IPv6 with its interface
            return address.removeprefix("::ffff:").partition("%")[0]
    except OSError as error:  # socket.gaierror is one
        raise LaunchError(
            f"{socket.gethostname()} has no route to {other}, where other ranks of this gang are "
            f"({error.strerror}); start the agent there with `--address HOST`, where the others "
            "reach it"
        ) from None


def interface_of(address: str, interfaces: Mapping[str, Sequence[str]]) -> str:
    """Return the interface with this address.

    Args:
        interfaces: The addresses of each interface.

    Raises:
        LaunchError: There is no such interface.
    """
    for name, addresses in interfaces.items():
        if address in addresses:
            return name
    raise LaunchError(
        f"{socket.gethostname()} reaches the other computers of this gang from {address}, but no "
        f"network interface has that address; there are {', '.join(interfaces)}. Name one in "
        "pools.yaml, as task_container_defaults.dtrain_network_interface of the pool"
    )


def _interfaces() -> dict[str, list[str]]:
    return {
        name: [each.address.partition("%")[0] for each in addresses]
        for name, addresses in psutil.net_if_addrs().items()
    }
