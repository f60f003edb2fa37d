"""pools.yaml: what is written is read again, and what is wrong with it names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.errors import ConfigError
from det_jupyter.master.service.pools_file import read_pools, simulated_agents, write_pools

POOLS = """
pools:
  - {pool_name: default, agents: [left]}
  - {pool_name: big, agents: [right]}
agents:
  - {id: left, slots: "cpu:2"}
  - {id: right, slots: "cpu:8"}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    found = paths.pools_file()
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


def test_without_a_file_there_are_none(file: Path) -> None:
    assert read_pools() is None
    assert simulated_agents() == []


def test_a_file_names_pools_and_agents(file: Path) -> None:
    file.write_text(POOLS)
    found = read_pools()
    assert found is not None
    assert [pool.pool_name for pool in found.pools] == ["default", "big"]
    assert simulated_agents() == ["left=cpu:2", "right=cpu:8"]


def test_pools_that_are_set_are_written_and_the_agents_stay(file: Path) -> None:
    file.write_text(POOLS)
    before = read_pools()
    write_pools(
        [{"pool_name": "default", "agents": ["left", "right"], "description": "größe"}], before
    )
    after = read_pools()
    assert before is not None
    assert after is not None
    assert [(pool.pool_name, pool.description) for pool in after.pools] == [("default", "größe")]
    assert after.agents == before.agents
    assert file.stat().st_mode & 0o777 == 0o600
    write_pools([{"pool_name": "default"}], None)
    assert simulated_agents() == []


@pytest.mark.parametrize("text", [b"pools: [", b"pools: {a: 1}", b"\xff\xfe", b"- 1"])
def test_a_wrong_file_is_one_error_that_names_it_and_has_no_agents(
    file: Path, text: bytes
) -> None:
    file.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        read_pools()
    assert caught.value.problems
    assert all(str(problem).startswith(f"{file}: ") for problem in caught.value.problems)
    assert simulated_agents() == []
