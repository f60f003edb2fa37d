"""Control groups, of both versions."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.host.control_groups import ControlGroup, usable_memory
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
