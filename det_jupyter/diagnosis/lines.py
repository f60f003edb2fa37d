"""Lines to paste into a configuration, each with what it gained here and what it means."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from det_jupyter.diagnosis.outcome import Row

_NOTHING = "# nothing that was tried gained anything"


def yaml_lines(rows: Sequence[Row]) -> str:
    """Return YAML: of each key the best change that keeps the results; others are comments."""
    gains = sorted(
        (row for row in rows if row.recipe.is_remedy and row.sign == "gain"),
        key=lambda row: -(row.ratio.middle if row.ratio else 0),
    )
    in_section = [row for row in gains if row.recipe.optimizations]
    lines = [f"# {line}" for row in gains if row.detail for line in _of_loader(row)]
    taken: set[str] = set()
    body = [line for row in in_section for line in _of_section(row, taken)]
    if body:
        head = "optimizations:" if taken else "# optimizations:"
        lines += [head, *body]
    return "\n".join([*lines, *_of_costs(rows)] or [_NOTHING]) + "\n"


def _of_loader(row: Row) -> list[str]:
    return [f"in build_training_data_loader: {row.detail}  # {_said(row)}"]


def _of_section(row: Row, taken: set[str]) -> list[str]:
    keys = row.recipe.optimizations
    is_live = row.recipe.effect == "safe" and not taken & keys.keys()
    if is_live:
        taken.update(keys)
    text = yaml.safe_dump(keys, sort_keys=False).splitlines()
    mark = "" if is_live else "# "
    return [f"  {mark}{text[0]}  # {_said(row)}", *(f"  {mark}{line}" for line in text[1:])]


def _of_costs(rows: Sequence[Row]) -> list[str]:
    """Return what only shows a cost, marked as no advice."""
    costs = [row for row in rows if not row.recipe.is_remedy and row.sign == "gain"]
    return [
        f"# diagnostic only: {row.recipe.title}: {row.ratio} as fast, so {row.verdict}"
        for row in costs
    ]


def _said(row: Row) -> str:
    because = f": {row.recipe.because}" if row.recipe.because else ""
    return f"{row.ratio} as fast here; {row.recipe.effect}{because}"
