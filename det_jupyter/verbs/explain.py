"""`%det_experiment ? searcher.divisor`: what a key of the configuration means."""

from __future__ import annotations

from difflib import get_close_matches

from det_jupyter.config import FieldHelp, describe, known_keys
from det_jupyter.config.tree import all_paths
from det_jupyter.errors import NotFound
from det_jupyter.verbs.tables import plain_table, shown


def explain(path: str) -> str:
    """Return the help on a key; on a section, with its keys; without a path, on the whole.

    Raises:
        NotFound: There is no such key.
    """
    lines = []
    if path:
        found = describe(path)
        if found is None:
            raise NotFound(_unknown(path))
        lines = [f"{found.path}  ({_kind(found)})", found.text, found.note]
    keys = known_keys(path)
    rows = [(name, field.type, _default(field), field.text) for name, field in keys.items()]
    if rows:
        lines.append(plain_table(("key", "type", "default", "meaning"), rows))
    return "\n".join(line for line in lines if line)


def _kind(field: FieldHelp) -> str:
    if field.is_required:
        return f"{field.type}, required"
    return field.type if field.default is None else f"{field.type}, default {_default(field)}"


def _default(field: FieldHelp) -> str:
    return "required" if field.is_required else shown(field.default)


def _unknown(path: str) -> str:
    paths = list(all_paths())
    last = path.rpartition(".")[2]
    near = [known for known in paths if known.rpartition(".")[2] == last]
    near = near or get_close_matches(path, paths, n=3)
    hint = f"did you mean {' or '.join(near[:3])}?" if near else "%det_experiment ? lists all keys"
    return f"there is no key {path}; {hint}"
