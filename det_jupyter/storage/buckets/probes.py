"""Objects that are put for a moment: to try the keys, and to tell one location from another."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError

from det_jupyter.storage.buckets.objects import explaining
from det_jupyter.storage.buckets.opening import open_bucket

PROBE = ".det-check"  # the same for all: of keys that may not delete, one stays


def check(location: str) -> None:
    """Check that objects can be written, read, listed and deleted. Leaves none.

    Others may check at the same time, so the object may be there, or gone, at any step.

    Raises:
        BucketProblem: They cannot; the message says what is lacking.
    """
    store = open_bucket(location)
    with explaining(location, "write"), suppress(AlreadyExistsError):
        obstore.put(store, PROBE, b"det_jupyter", mode="create")
    try:
        with explaining(location, "read"), suppress(FileNotFoundError):
            obstore.get(store, PROBE).bytes()
        with explaining(location, "list"):
            next(iter(obstore.list(store, prefix=f"{PROBE}/")), None)
    finally:
        remove_probes(location, [PROBE])


def put_probe(location: str) -> tuple[str, float]:
    """Put an object of a new name; return the name, and the time of the server."""
    store, key = open_bucket(location), f"{PROBE}-{uuid4().hex}"
    with explaining(location, "write"):
        obstore.put(store, key, b"det_jupyter")
    with explaining(location, "read"):
        return key, float(obstore.head(store, key)["last_modified"].timestamp())


def remove_probes(location: str, names: list[str]) -> None:
    """Remove objects that were put by `check` and `put_probe`."""
    with explaining(location, "delete"), suppress(FileNotFoundError):
        obstore.delete(open_bucket(location), names)


def has(location: str, name: str) -> bool:
    """Return whether there is an object of this name."""
    with explaining(location, "read"):
        try:
            obstore.head(open_bucket(location), name)
        except FileNotFoundError:
            return False
    return True
