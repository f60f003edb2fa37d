"""Distributes tests to parallel processes: files one by one, but some files together."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

# Files that share what is slow to start, which otherwise each process would start: a master, a
# server, Chromium and its tab; a master, and agents of other computers; imported libraries.
TOGETHER = ("tests/lab/", "tests/e2e/test_remote_", "tests/unit/integrations/")
# For each worker, the rooms that it takes first, in order; all other files follow. Files of a room
# share what is slow to start, e2e the most: a master, an agent and torch.
ROOMS = (
    ("lab", "browser", "integration", "e2e"),
    ("e2e", "integration"),
    ("integration", "e2e"),
    ("unit",),  # these compute while other tests wait for processes
)


class RoomsApart(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Distributes files; the files of a room go to as few processes as keep all processes busy.

    Files of TOGETHER count as one file.
    """

    def _split_scope(self, nodeid: str) -> str:
        together = (each for each in TOGETHER if nodeid.startswith(each))
        return next(together, None) or super()._split_scope(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Give the remaining tests of an ended process to others; return the test that crashed it.

        xdist 3.8 also passes on finished files, without tests, and then waits for ever; and it
        runs the crashed test again.
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
