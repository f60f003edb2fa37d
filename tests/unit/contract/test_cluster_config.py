"""The settings of a cluster, and the names of its agents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.errors import ConfigError

RAY = {"engine": "ray", "address": "head:6379"}


def parse(**settings: Any) -> ClusterConfig:
    return parse_pools({"clusters": [RAY | settings]}).clusters[0]


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("head", "head", 6379),
        ("head:1234", "head", 1234),
        ("10.0.0.7:6379", "10.0.0.7", 6379),
        ("[fd00::1]:6379", "fd00::1", 6379),
    ],
)
def test_an_address_has_the_engines_port_if_it_gives_none(
    address: str, host: str, port: int
) -> None:
    assert parse(address=address).host_and_port == (host, port)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "slurm"}, r"clusters\[0\].engine"),
        ({"address": "ray://head:10001"}, r"HOST:PORT of the cluster's head \(6379, not"),
        ({"address": "head:0"}, "HOST:PORT"),
        ({"address": "head:65536"}, "HOST:PORT"),
        ({"slots": "all"}, "expected gpu, or a number of CPU places"),
        ({"slots": 0}, "expected gpu, or a number of CPU places"),
        ({"slots": True}, "expected gpu, or a number of CPU places"),
        ({"name": "a b"}, "up to 32 letters"),
        ({"idle_minutes": 0}, "idle_minutes"),
        ({"adress": "x"}, "unknown key; there are engine, address, name"),
    ],
)
def test_settings_that_are_not_valid_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(**settings)


def test_two_clusters_need_two_names() -> None:
    with pytest.raises(ConfigError, match=r"clusters\[1\].name: got 'ray' once more"):
        parse_pools({"clusters": [RAY, RAY | {"address": "other"}]})


@given(hostname=st.text(max_size=80), node_id=st.text("0123456789abcdef", min_size=6))
def test_agents_names_are_valid_and_belong_to_their_cluster(hostname: str, node_id: str) -> None:
    config = parse(name="r" * 32)
    name = config.agent_name(hostname, node_id)
    assert len(name) <= 63
    assert name.startswith("r" * 32 + "-")
    assert name.endswith(node_id[:6])
    assert all(each.isascii() and (each.isalnum() or each in "._-") for each in name)
