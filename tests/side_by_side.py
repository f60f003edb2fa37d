"""Distributes tests to parallel processes: files one by one, but some files together."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from xdist.scheduler import LoadFileScheduling

# Files that share what is slow to start, which otherwise each process would start: a master, a
# server, Chromium and its tab; a master, and agents of other computers; imported libraries.
TOGETHER = ("tests/lab/", "tests/e2e/test_remote_", "tests/unit/integrations/")
# For each worker, the rooms that it takes first, in order; all other files follow. Files of a room
# share what is slow to start, e2e the most: a master, an agent and torch.
ROOMS = (
    ("lab", "integration", "e2e"),
    ("e2e", "integration"),
    ("integration", "e2e"),
    ("e2e", "integration"),
    # These compute while other tests wait for processes, and share the trees of all modules.
    ("unit", "test_architecture.py"),
)


class RoomsApart(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Distributes files; the files of a room go to as few processes as keep all processes busy.

    Files of TOGETHER count as one file.
    """

    def _split_scope(self, nodeid: str) -> str:
        together = (each for each in TOGETHER if nodeid.startswith(each))
        return next(together, None) or super()._split_scope(nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0.0) -> None:
        """Remove a test from the process's work.

        xdist keeps it, and counts all tests that the process has had after each of them.
        """
        nodeid = self.collection[item_index]
        work, scope = self.assigned_work[node], self._split_scope(nodeid)
        del work[scope][nodeid]
        if not work[scope]:
            del work[scope]
        self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Give the remaining tests of an ended process to others; return the test that crashed it.

        xdist 3.8 runs the crashed test again.
        """
        work = self.assigned_work.pop(node)
        if not work:
            return None
        tests = next(iter(work.values()))
        crashed: str = next(iter(tests))
        del tests[crashed]
        self.workqueue.update({scope: left for scope, left in work.items() if left})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: Any) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        rooms = ROOMS[number % len(ROOMS)]

        def turn(scope: str) -> int:
            room = scope.removeprefix("tests/").partition("/")[0]
            return rooms.index(room) if room in rooms else len(rooms)

        scope = min(self.workqueue, key=turn)
        tests = self.assigned_work.setdefault(node, {})[scope] = self.workqueue.pop(scope)
        node.send_runtest_some([self._indices[nodeid] for nodeid in tests])

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {nodeid: index for index, nodeid in enumerate(self.collection)}
