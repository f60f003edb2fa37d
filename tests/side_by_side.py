"""Which tests run side by side in several processes: files, but all journeys in one."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from xdist.scheduler import LoadFileScheduling

LAB = "tests/lab/"
# The rooms whose files a process takes first, and from which room next; all others come last.
# Each room shares what takes seconds to start, and e2e the most: a master, an agent and torch.
ROOMS = (("lab", "browser", "integration", "e2e"), ("e2e", "integration"), ("integration", "e2e"))


class RoomsApart(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files side by side, those of a room in one process as far as there are others to run.

    The journeys through JupyterLab are as if they were one file: they share a master, a server,
    Chromium and its tab, which each process would start, and load, for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        return LAB if nodeid.startswith(LAB) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        rooms = ROOMS[number % len(ROOMS)]

        def turn(scope: str) -> int:
            room = PurePath(scope).parts[1]
            return rooms.index(room) if room in rooms else len(rooms)

        self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
        super()._assign_work_unit(node)
