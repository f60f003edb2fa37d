"""Which tests run side by side in several processes: files, but all journeys in one."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

LAB = "tests/lab/"
# For each worker, the rooms it takes first, in order; all other files come after.
# Files of a room share what takes seconds to start, e2e the most: a master, an agent and torch.
ROOMS = (
    ("lab", "browser", "integration", "e2e"),
    ("e2e", "integration"),
    ("integration", "e2e"),
    ("unit",),  # they compute while the others wait for processes
)


class RoomsApart(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files side by side, those of a room in as few processes as keep all busy.

    The journeys through JupyterLab are as if they were one file: they share a master, a server,
    Chromium and its tab, which each process would start, and load, for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        return LAB if nodeid.startswith(LAB) else super()._split_scope(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Let others run the tests that a process has left; return the one that it crashed in.

        xdist 3.8 also hands the files on that were finished, as no tests, and then waits for ever;
        and it runs the test that crashed again.
        """
        work = self.assigned_work.pop(node)
        left = {scope: tests for scope, tests in work.items() if not all(tests.values())}
        if not left:
            return None
        tests = next(iter(left.values()))
        crashed: str = next(nodeid for nodeid, is_done in tests.items() if not is_done)
        tests[crashed] = True
        self.workqueue.update(
            {scope: tests for scope, tests in left.items() if not all(tests.values())}
        )
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: Any) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        rooms = ROOMS[number % len(ROOMS)]

        def turn(scope: str) -> int:
            room = scope.removeprefix("tests/").partition("/")[0]
            return rooms.index(room) if room in rooms else len(rooms)

        self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
        super()._assign_work_unit(node)
