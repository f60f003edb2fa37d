"""Resource pools, as people write them down."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.messages import SetPools
from det_jupyter.errors import ConfigError
from tests.problems import said


def test_without_anything_there_is_the_default_pool_with_priorities() -> None:
    (pool,) = parse_pools({}).pools

    assert (pool.pool_name, pool.scheduler.type, pool.scheduler.preemption) == (
        "default", "priority", False,
    )  # fmt: skip
    assert pool.scheduler.default_priority == 42


def test_the_default_pool_exists_even_if_the_file_names_others() -> None:
    parsed = parse_pools({"pools": [{"pool_name": "night", "agents": ["gpu-*"]}]})

    assert [pool.pool_name for pool in parsed.pools] == ["night", "default"]
    assert parsed.pools[0].has("gpu-7")
    assert not parsed.pools[0].has("cpu-7")


def test_the_default_pool_can_be_given_rules() -> None:
    document = {"pools": [{"pool_name": "default", "scheduler": {"preemption": True}}]}

    assert [pool.scheduler.preemption for pool in parse_pools(document).pools] == [True]


def test_simulated_agents_are_named_with_their_places() -> None:
    (agent,) = parse_pools({"agents": [{"id": "left", "slots": "cpu:8"}]}).agents

    assert (agent.id, agent.slots) == ("left", "cpu:8")


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ({"pool": []}, ["pool: unknown key; there are pools, agents, clusters"]),
        ({"pools": 4}, ["pools: got 4, expected a list"]),
        (
            {"pools": [{"pool_name": "a", "scheduler": {"type": "prio", "weight": 3}}]},
            [
                "pools[0].scheduler.type: got 'prio', expected priority, fair_share or "
                "round_robin",
                "pools[0].scheduler.weight: unknown key; there are type, preemption, "
                "default_priority, fitting_policy, allow_heterogeneous_fits, reservation_depth",
            ],
        ),
        (
            {"pools": [{"pool_name": "a"}, {"pool_name": "a"}]},
            ["pools[1].pool_name: got 'a' once more; every one needs a name of its own"],
        ),
        (
            {"agents": [{"id": "a b", "slots": "gpu:2"}]},
            [
                "agents[0].id: got 'a b', expected letters, digits, '.', '_' or '-', at most 64",
                "agents[0].slots: got 'gpu:2', expected so many CPU places, such as cpu:8",
            ],
        ),
    ],
)
def test_all_that_is_wrong_is_told_at_once(
    document: dict[str, object], problems: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pools(document)

    assert said(caught.value.problems) == problems


def test_pools_without_number_are_refused_before_they_are_read() -> None:
    with pytest.raises(ValidationError, match="at most 1000 items"):
        SetPools(pools=[{"no": "name"}] * 1001)
