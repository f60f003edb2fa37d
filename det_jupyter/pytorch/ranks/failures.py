"""Another rank's end, as a script's ranks should see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from det_jupyter.core import Context
from det_jupyter.core.lost import PLACE, PeerFailed, PeerLost, is_lost_peer


@contextmanager
def naming_lost_peers(core: Context | None) -> Iterator[None]:
    """Tell, in a script, that it was another rank that ended; an experiment sorts it out itself.

    Raises:
        PeerLost: In place of what gloo or NCCL say of it.
    """
    try:
        yield
    except Exception as error:
        is_script = core is not None and core.info is None
        if not is_script or isinstance(error, PeerFailed) or not is_lost_peer(error):
            raise
        said = PLACE.sub("", str(error)).strip().partition("\n")[0].partition(". ")[0]
        raise PeerLost(
            f"another rank has ended, and its own error has the cause (here it shows as: {said})"
        ) from None
