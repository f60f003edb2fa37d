"""The result of `diagnose`, as data, text and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from det_jupyter.client.tables import Row, Rows, plain_table
from det_jupyter.contract.messages.verdicts import Verdict
from det_jupyter.contract.values.text import count, date, experiment_title, number
from det_jupyter.diagnosis.gains import Sign
from det_jupyter.diagnosis.recipe_results import RecipeResult, yaml_lines
from det_jupyter.diagnosis.recipes import LeftOut
from det_jupyter.view.forms.html_parts import CARD, PRE, QUIET, block, escaped, html_table
from det_jupyter.view.forms.svg import COLORS, as_image

_BAR_WIDTH, _BAR_HEIGHT = 100, 12
_SIGNS: Mapping[Sign | None, str] = {
    "gain": "▲",
    "loss": "▼",
    "none": "=",
    "unclear": "?",
    None: "",
}
_HEAD = ("recipe", "records/s", "times as fast", "efficiency", "")
_VERDICT_STYLE = "text-align:left;white-space:normal;min-width:180px"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What limits a trial, and which changes helped; prints and displays as a table.

    Attributes:
        experiment_id, name: The experiment.
        slots: Number of its trial's slots.
        at: End of the diagnosis, in UTC seconds.
        rounds: Number of runs of each recipe.
        seconds: Duration of the measurement in each run.
        rows: One for each recipe that ran.
        left_out: The recipes that did not run, and why.
        verdict: The conclusion.
    """

    experiment_id: int
    name: str
    slots: int
    at: float
    rounds: int
    seconds: float
    rows: Sequence[RecipeResult]
    left_out: Sequence[LeftOut]
    verdict: Verdict

    @property
    def yaml(self) -> str:
        """Lines to paste into the configuration, each with its measured gain."""
        head = (
            f"# {experiment_title(self.experiment_id, self.name)}, {count(self.slots, 'slot')}: "
            f"measured on {date(self.at)}, {self.rounds} rounds of {self.seconds:g} s"
        )
        return f"{head}\n{yaml_lines(self.rows)}"

    def table(self) -> Rows:
        """Return a row for each recipe that ran; `ratio_low` and `ratio_high` bound `ratio`."""
        return Rows(
            Row(
                recipe=row.recipe.name,
                records_per_s=row.records_per_s,
                ratio=row.ratio and row.ratio.middle,
                ratio_low=row.ratio and row.ratio.low,
                ratio_high=row.ratio and row.ratio.high,
                sign=row.sign,
                efficiency=row.efficiency and row.efficiency.middle,
                effect=row.recipe.effect,
                verdict=row.verdict,
                detail=row.detail,
            )
            for row in self.rows
        )

    def __repr__(self) -> str:
        parts = [
            self.verdict.sentence,
            *self._evidence(),
            "",
            plain_table(_HEAD, [*map(_cells, self.rows)]),
            *self._left_out(),
            "",
            self.yaml.rstrip("\n"),
        ]
        return "\n".join(parts)

    def _evidence(self) -> list[str]:
        """Return the evidence for each cause that the verdict's sentence does not contain."""
        return [
            f"{line[0].upper()}{line[1:]}." for c in self.verdict.causes for line in c.evidence[1:]
        ]

    def _left_out(self) -> list[str]:
        """Return a line for each reason to leave recipes out."""
        by_reason: dict[str, list[str]] = {}
        for item in self.left_out:
            by_reason.setdefault(item.why, []).append(item.recipe.title)
        return [f"Left out, as {why}: {'; '.join(names)}" for why, names in by_reason.items()]

    def _repr_html_(self) -> str:
        best = max((row.records_per_s or 0 for row in self.rows), default=0)
        head, *_ = _HEAD
        table = html_table(
            [head, "", *map(escaped, _HEAD[1:])], [_html_cells(row, best) for row in self.rows]
        )
        left = "".join(block("div", line, QUIET) for line in self._left_out())
        title = f"Bottlenecks of {experiment_title(self.experiment_id, self.name)}"
        return (
            f'<div style="{CARD}">'
            f"{block('div', title, 'font-size:15px;font-weight:600')}"
            f"{block('p', self.verdict.sentence, 'margin:6px 0')}"
            f"{block('div', ' '.join(self._evidence()), QUIET)}"
            f'<div style="overflow-x:auto">{table}</div>{left}'
            f'<pre style="{PRE}">{escaped_lines(self.yaml)}</pre></div>'
        )


def escaped_lines(text: str) -> str:
    """Return lines as HTML for a `<pre>`."""
    return "\n".join(map(escaped, text.splitlines()))


def _cells(row: RecipeResult) -> tuple[str, ...]:
    rate = number(row.records_per_s) if row.records_per_s is not None else "–"
    ratio = f"{_SIGNS[row.sign]} {row.ratio.text}".strip() if row.ratio else ""
    efficiency = f"{100 * row.efficiency.middle:.0f} %" if row.efficiency else ""
    words = f"{row.verdict}: {row.detail}" if row.detail else row.verdict
    return row.recipe.title, rate, ratio, efficiency, words


def _html_cells(row: RecipeResult, best: float) -> list[str]:
    title, *numbers, words = map(escaped, _cells(row))
    return [title, _bar(row, best), *numbers, f'<div style="{_VERDICT_STYLE}">{words}</div>']


def _bar(row: RecipeResult, best: float) -> str:
    """Return a bar of the throughput in HTML, coloured by gain or loss."""
    if not row.records_per_s:
        return ""
    color = {"gain": COLORS[2], "loss": COLORS[1]}.get(row.sign or "", COLORS[0])
    width = max(1.0, _BAR_WIDTH * row.records_per_s / best)
    svg = (
        f'<svg viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}">'
        f'<rect width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{color}"/></svg>'
    )
    style = f"width:{_BAR_WIDTH}px;height:{_BAR_HEIGHT}px;display:block"
    return as_image(svg, f"{number(row.records_per_s)} records/s", style)
