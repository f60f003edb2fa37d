"""Which words fit at a place in a configuration: keys, values, hyperparameter types."""

from __future__ import annotations

from collections.abc import Callable

from det_jupyter.config import choices, known_keys
from det_jupyter.config.keys import NO_MEANING
from det_jupyter.entrypoints import entrypoint_text
from det_jupyter.notebook.complete.yaml_cursor import Cursor

TYPES = {
    "const": ("val",),
    "int": ("minval", "maxval", "count"),
    "double": ("minval", "maxval", "count"),
    "log": ("base", "minval", "maxval", "count"),
    "categorical": ("vals",),
}
UNITS = ("batches", "records", "epochs")

MetricNames = Callable[[str | None], list[str]]  # of a trial class


def words_at(cursor: Cursor, metric_names: MetricNames) -> list[str]:
    """Return what may be written at the cursor, keys with their colon.

    Args:
        cursor: Where.
        metric_names: Called only where the name of a metric is asked for.
    """
    if cursor.section[:1] == ("hyperparameters",):
        return _in_hyperparameters(cursor)
    if cursor.key is not None:
        return _values(cursor, metric_names)
    fitting = [name for name in _keys(cursor) if name not in cursor.given]
    return [f"{name}: " for name in fitting]


def _in_hyperparameters(cursor: Cursor) -> list[str]:
    if cursor.key == "type":
        return list(TYPES)
    if cursor.key is not None or len(cursor.section) < 2:
        return []
    keys = TYPES.get(_given_type(cursor), ("type",))
    return [f"{key}: " for key in keys if key not in cursor.given]


def _given_type(cursor: Cursor) -> str:
    place = cursor.document
    for key in cursor.section:
        place = place.get(key, {})
    return str(place.get("type", ""))


def _values(cursor: Cursor, metric_names: MetricNames) -> list[str]:
    path = ".".join((*cursor.section, cursor.key or ""))
    if path == "searcher.metric":
        entrypoint = cursor.document.get("entrypoint")
        return metric_names(entrypoint_text(entrypoint) if entrypoint else None)
    return list(choices(path))


def _keys(cursor: Cursor) -> list[str]:
    found = known_keys(".".join(cursor.section), cursor.document)
    return [name for name, field in found.items() if field.path not in NO_MEANING]
