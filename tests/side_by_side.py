"""Which tests run side by side in several processes: files, but all journeys in one."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

LAB = "tests/lab/"


class JourneysInOne(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files side by side; the journeys through JupyterLab are as if they were one file.

    They share a master, a server, Chromium and its tab, which each process would start, and load,
    for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        return LAB if nodeid.startswith(LAB) else super()._split_scope(nodeid)
