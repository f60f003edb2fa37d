"""What somebody may have meant by a key that does not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from det_jupyter.config.paths import either, look_up
from det_jupyter.config.steps import explain_steps
from det_jupyter.config.tree import TAGS, all_paths, fields_of, kinds, sections_at

_GONE = {
    "template": "it is named in a cell or file only, or with --template NAME; a template has none",
    "searcher.budget": "training is limited by max_trials and max_length",
    "searcher.step_budget": "training is limited by max_trials and max_length",
    "searcher.train_stragglers": "trials that were not promoted never train on",
    "searcher.unit": "max_length has its unit with it, such as {epochs: 6}",
    "internal.native": "remove it",
}
_MOST_LISTED = 16


def explain_unknown(parts: Sequence[str], document: Mapping[str, Any]) -> str:
    """Return what to say of an unknown key, without its path."""
    path = ".".join(parts)
    if path in _GONE:
        return f"unknown key; {_GONE[path]}"
    if explained := explain_steps(path, document):
        return explained
    *above, key = parts
    if (
        len(above) == 1
        and above[0] in TAGS
        and (other := _of_another_kind(above[0], key, document))
    ):
        return other
    names = list(fields_of(sections_at(above, document)))
    return f"unknown key; {_suggestion(key, above, names)}"


def _of_another_kind(section: str, key: str, document: Mapping[str, Any]) -> str | None:
    having = [kind for kind, model in kinds(section).items() if key in model.model_fields]
    if not having:
        return None
    kind = look_up(document, f"{section}.{TAGS[section]}")
    verb = "has" if len(having) == 1 else "have"
    return f"{kind} does not have it; {either(having, 'and')} {verb}"


def _suggestion(key: str, above: Sequence[str], names: Sequence[str]) -> str:
    if nearest := get_close_matches(key, names, n=1):
        return f"did you mean {nearest[0]}?"
    by_name: dict[str, str] = {}
    for path in all_paths():
        by_name.setdefault(path.rpartition(".")[2], path)
    elsewhere = [name for name in by_name if by_name[name] != ".".join((*above, name))]
    if nearest := get_close_matches(key, elsewhere, n=1, cutoff=0.8):
        return f"did you mean {by_name[nearest[0]]}?"
    if len(names) > _MOST_LISTED:
        return "remove it"
    return f"expected one of {', '.join(sorted(names))}"
