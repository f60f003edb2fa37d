"""Control groups, of both versions."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.host.control_groups import (
    ControlGroup,
    free_memory,
    usable_memory,
)
from tests.unit.agent.runs.test_memory_watch import write


@pytest.mark.parametrize(
    ("cgroup", "files", "killed", "limit"),
    [
        ("0::/job/step", {"job/step/memory.events": "low 0\noom 2\noom_kill 1\noom_group_kill 0\n",
                          "job/step/memory.max": "max\n", "job/memory.max": "5000\n"}, 1, 5000),
        ("0::/job", {"job/memory.events": "oom_kill 0\n", "job/memory.max": "6000\n",
                     "memory.max": "5000\n"}, 0, 5000),
        ("0::/job", {"job/memory.events": "oom_kill 0\n", "job/memory.max": "5000\n",
                     "memory.max": "6000\n"}, 0, 5000),
        ("9:name=systemd:/\n4:memory:/job\n0::/", {
            "memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            "memory/job/memory.stat": "cache 0\nhierarchical_memory_limit 7000\n"}, 3, 7000),
        # In a container: the path is the host's, and its group is mounted as the root.
        ("0::/docker/3f", {"memory.events": "oom_kill 2\n", "memory.max": "9000\n"}, 2, 9000),
        ("4:cpu,memory:/docker/3f", {"memory/memory.oom_control": "oom_kill 2\n"}, 2, None),
        ("0::/a:b", {"a:b/memory.events": "oom_kill 2\n"}, 2, None),
        ("0::/", {}, None, None),  # no container: the root group has no limit
        ("", {}, None, None),  # no Linux
    ],
)  # fmt: skip
def test_both_versions_of_control_groups_are_read(
    tmp_path: Path, cgroup: str, files: dict[str, str], killed: int | None, limit: int | None
) -> None:
    root = tmp_path / "groups"
    write(root, files)
    write(tmp_path, {"memory.max": "1\n", "memory.events": "oom_kill 9\n"})  # of no group
    group = ControlGroup(cgroup, root)
    assert (group.num_killed(), group.limit_bytes()) == (killed, limit)


@pytest.mark.parametrize(("limit", "usable"), [("5000", 5000), ("max", None)])
def test_a_process_may_use_what_its_group_allows(
    tmp_path: Path, limit: str, usable: int | None
) -> None:
    write(tmp_path, {"cgroup": "0::/job", "job/memory.events": "", "job/memory.max": limit})
    total = psutil.virtual_memory().total
    assert usable_memory(tmp_path / "cgroup", tmp_path) == (usable or total)


@pytest.mark.parametrize(
    ("cgroup", "files", "free"),
    [
        ("0::/job", {"memory.max": "9000\n", "memory.current": "8500\n",
                     "memory.stat": "anon 1\ninactive_file 100\nactive_file 9\n",
                     "job/memory.events": "", "job/memory.max": "5000\n",
                     "job/memory.current": "4000\n"}, 600),
        ("4:memory:/job", {
            "memory/job/memory.oom_control": "", "memory/job/memory.usage_in_bytes": "4000\n",
            "memory/job/memory.stat": "inactive_file 50\nhierarchical_memory_limit 7000\n"}, 3050),
        ("0::/", {}, None),
    ],
)  # fmt: skip
def test_a_process_may_still_take_what_its_groups_have_not_used(
    tmp_path: Path, cgroup: str, files: dict[str, str], free: int | None
) -> None:
    write(tmp_path / "groups", files)
    write(tmp_path, {"cgroup": cgroup})
    available = psutil.virtual_memory().available
    found = free_memory(tmp_path / "cgroup", tmp_path / "groups")
    assert found == free if free is not None else found > available / 2
