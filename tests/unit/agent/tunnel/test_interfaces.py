"""Which network interface a part of a gang uses."""

from __future__ import annotations

import socket

import psutil
import pytest

from det_jupyter.agent.tunnel import interfaces
from det_jupyter.agent.tunnel.interfaces import find_network, interface_of, own_address
from det_jupyter.contract.messages import GangLink, GangNetwork
from det_jupyter.errors import LaunchError


def link(*addresses: str) -> GangLink:
    return GangLink(
        agents=[f"{number}" for number, _ in enumerate(addresses)],
        addresses=list(addresses),
        ports=[1] * len(addresses),
        certificate="",
        secret="",
    )


ROUTES = {"10.0.0.1": "10.0.0.9", "10.1.0.2": "10.1.0.9", "192.168.0.1": "192.168.0.9"}
INTERFACES = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.9", "fe80::1"], "ib0": ["10.1.0.9"]}


@pytest.mark.parametrize(
    ("addresses", "groups", "master", "expected"),
    [
        # the route to the chief counts
        (
            ("10.0.0.1", "10.0.0.9", "10.1.0.2"),
            [1],
            "",
            (["10.0.0.1", "10.0.0.9", "10.1.0.2"], "eth0"),
        ),
        # on the chief's computer the route to the first other one
        (("10.1.0.9", "10.1.0.2"), [0], "10.0.0.1", (["10.1.0.9", "10.1.0.2"], "ib0")),
        (
            ("10.1.0.9", "10.1.0.9", "10.1.0.2"),
            [0, 1],
            "",
            (["10.1.0.9"] * 2 + ["10.1.0.2"], "ib0"),
        ),
        # the master's computer is where the agent's credentials say
        (("10.0.0.9", ""), [0], "10.0.0.1", (["10.0.0.9", "10.0.0.1"], "eth0")),
        # and there the address is that of the route
        (("10.0.0.1", ""), [1], "", (["10.0.0.1", "10.0.0.9"], "eth0")),
    ],
)
def test_interface_is_that_of_the_route_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
    addresses: tuple[str, ...],
    groups: list[int],
    master: str,
    expected: tuple[list[str], str],
) -> None:
    monkeypatch.setattr(interfaces, "own_address", ROUTES.__getitem__)
    monkeypatch.setattr(interfaces, "_interfaces", lambda: INTERFACES)
    found = find_network(link(*addresses), groups, master=master)
    assert (found.addresses, found.interface) == expected


def test_several_agents_on_one_computer_use_its_loopback_interface() -> None:
    found = find_network(link("127.0.0.1", "127.0.0.1"), [1])
    loopback = [each.address for each in psutil.net_if_addrs()[found.interface]]
    assert "127.0.0.1" in loopback


def test_address_without_a_name_or_interface_is_reported() -> None:
    here = socket.gethostname()
    with pytest.raises(LaunchError, match=f"{here} has no route to nowhere.invalid, where other"):
        own_address("nowhere.invalid")
    with pytest.raises(LaunchError, match=r"from 10.7.7.7, but .*; there are lo, eth0, ib0. Name"):
        interface_of("10.7.7.7", INTERFACES)


def test_interface_of_the_pool_counts_and_has_to_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "own_address", ROUTES.__getitem__)
    monkeypatch.setattr(interfaces, "_interfaces", lambda: INTERFACES)
    near = link("10.0.0.1", "10.0.0.9")
    assert find_network(near.model_copy(update={"interface": "ib0"}), [1]).interface == "ib0"
    with pytest.raises(LaunchError) as refused:
        find_network(near.model_copy(update={"interface": "eth7"}), [1])
    assert str(refused.value) == (
        f"dtrain_network_interface: got 'eth7', but {socket.gethostname()} has only the network "
        "interfaces lo, eth0, ib0; name one that all computers of the pool have, or leave it out"
    )


def test_ipv4_address_in_the_notation_of_ipv6_is_understood() -> None:
    assert own_address("::ffff:127.0.0.1") == own_address("127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["eth0"]),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, ["ib0"]),
        ({"GLOO_SOCKET_IFNAME": "ib0,ib1"}, ["ib0", "ib1"]),
        ({"NCCL_SOCKET_IFNAME": "ib"}, ["ib0", "ib1"]),
        ({"NCCL_SOCKET_IFNAME": "=ib1"}, ["ib1"]),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, ["eth0"]),
        ({"NCCL_SOCKET_IFNAME": "^eth,lo"}, ["ib0"]),
        ({"NCCL_SOCKET_IFNAME": "wlan"}, ["eth0"]),
    ],
)
def test_interfaces_that_are_used_are_those_that_the_user_names(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: list[str]
) -> None:
    names: dict[str, list[str]] = {"lo": [], "eth0": [], "ib0": [], "ib1": []}
    monkeypatch.setattr(interfaces, "_interfaces", lambda: names)
    network = GangNetwork(addresses=[], interface="eth0")
    assert interfaces.used_interfaces(network, variables) == expected
