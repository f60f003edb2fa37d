"""How labels of an experiment, a model or a version are changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.errors import Problem

_MOST_LABELS = 100


def change_labels(
    before: Sequence[str], added: Sequence[str], removed: Sequence[str]
) -> tuple[list[str], list[Problem]]:
    """Return the labels after a change, and what is wrong with it."""
    labels = [label for label in dict.fromkeys([*before, *added]) if label not in removed]
    problems = [
        Problem("labels", f"{label!r} is both to add and to remove; give it once")
        for label in added
        if label in removed
    ]
    problems += [
        Problem("labels", f"got {label!r}, expected one line of printable text")
        for label in added
        if not label.strip() or not label.isprintable()
    ]
    if (num := len(labels)) > _MOST_LABELS:
        problems.append(
            Problem("labels", f"{num} with those it has, expected at most {_MOST_LABELS}")
        )
    return labels, problems
