"""Where things are in pictures: scales, ticks, and curves to a tenth of a pixel."""

from __future__ import annotations

import re
from typing import Any

import pytest

from det_jupyter.view.forms import parallel_svg as parallel
from det_jupyter.view.forms.svg import (
    COLORS,
    color,
    is_dashed,
    padded,
    svg_chart,
    tick_text,
    ticks,
)
from det_jupyter.view.forms.verdict_card import svg_shares

CURVE: Any = {
    "trial_id": 1, "label": "x", "group": "validation", "steps": [0, 5, 10],
    "values": [1.0, 2.0, 3.0], "last": 3.0, "look": 0, "kind": "line", "is_faint": False,
}  # fmt: skip


def drawn(**changes: Any) -> str:
    return svg_chart({"title": "t", "series": [CURVE | changes]}, 10)  # type: ignore[typeddict-item]  # a part


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0.0, 0.5, 1.0]),
        (-3, 7, [0.0, 5.0]),
        (0.001, 0.0035, [0.001, 0.002, 0.003]),
        (0, 99, [0.0, 50.0]),
        (5, 5, []),
    ],
)
def test_ticks_are_few_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (-2.5, "-2.5"),
        (123456.0, "123456"),
        (1e6, "1.00e+6"),
        (1e-4, "0.0001"),
        (1e-5, "1.00e-5"),
    ],
)
def test_numbers_beside_ticks(value: float, text: str) -> None:
    assert tick_text(value) == text


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0, 10), (-0.5, 10.5)),
        ((5, 5), (4.5, 5.5)),
        ((0, 0), (-1, 1)),
        ((-2, -2), (-2.2, -1.8)),
        ((-1.7e308, 1.7e308), (-8e307, 8e307)),
    ],
)
def test_a_range_has_a_margin(ends: tuple[float, float], expected: tuple[float, float]) -> None:
    assert padded(*ends) == pytest.approx(expected)


def test_a_curve_is_where_its_values_are() -> None:
    svg = drawn()
    assert svg.startswith('<svg viewBox="0 0 320 150">')
    assert 'points="14.2,126.4 162.1,70.0 310.0,13.6"' in svg
    assert re.findall(r'<line x1="14.2" x2="310" y1="([\d.]+)"', svg) == ["126.4", "70.0", "13.6"]
    assert re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)".*?>(.*?)<', svg) == [
        ("9.2", "129.4", "end", "1"), ("9.2", "73.0", "end", "2"), ("9.2", "16.6", "end", "3"),
        ("14.2", "146.0", "middle", "0"), ("162.1", "146.0", "middle", "5"),
        ("310.0", "146.0", "middle", "10"),
    ]  # fmt: skip


def test_points_around_a_gap_are_dots() -> None:
    svg = drawn(values=[1.0, None, 3.0])
    assert "<polyline" not in svg
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="2.2"', svg)
    assert found == [("14.2", "126.4"), ("310.0", "13.6")]


@pytest.mark.parametrize(
    ("changes", "look", "dashed"),
    [
        ({}, ("1.2", COLORS[0], "1"), False),
        ({"look": len(COLORS) - 1}, ("1.2", COLORS[-1], "1"), False),
        ({"look": len(COLORS)}, ("1.2", COLORS[0], "1"), True),
        ({"kind": "dots"}, ("1.6", COLORS[0], "1"), False),
        ({"is_faint": True, "look": len(COLORS)}, ("0.8", "currentColor", "0.3"), False),
    ],
)
def test_curves_look_different(changes: Any, look: tuple[str, ...], dashed: bool) -> None:
    svg = drawn(**changes)
    (line,) = re.findall(r"<polyline.*?/>", svg)
    width, stroke, opacity = look
    assert f'stroke="{stroke}" stroke-width="{width}"' in line
    assert f'opacity="{opacity}"' in line
    assert ("stroke-dasharray" in line) == is_dashed(CURVE | changes) == dashed
    assert color(CURVE | changes) == stroke


ROW = 16


def share(kind: str, word: str, part: float) -> Any:
    return {"kind": kind, "word": word, "share": part}


def test_a_bar_of_shares_has_its_legend_in_rows() -> None:
    svg = svg_shares(
        [
            share("compute", "a" * 40, 0.5),
            share("input", "b" * 40, 0.25),
            share("transfer", "c" * 40, 0.25),
            share("residual", "d", 0.004),  # too little to be seen
        ]
    )
    rects = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)" height="(\d+)"', svg)
    assert rects[:3] == [
        ("0.0", "0", "320.0", "18"), ("320.0", "0", "160.0", "18"), ("480.0", "0", "160.0", "18"),
    ]  # fmt: skip
    swatches = [(float(x), int(y)) for x, y, _, _ in rects[3:]]
    texts = [(float(x), int(y)) for x, y in re.findall(r'<text x="([\d.]+)" y="(\d+)"', svg)]
    assert texts == [(x + 14, y + 9) for x, y in swatches]
    assert [y for _, y in swatches] == [24, 24, 24 + ROW]
    assert [x for x, _ in swatches] == [0.0, 280.0, 0.0]
    (height,) = re.findall(r'viewBox="0 0 640 (\d+)"', svg)
    assert int(height) == 24 + 2 * ROW


def axis(**changes: Any) -> Any:
    fields = {"name": "n", "scale": "linear", "is_whole": False, "low": 0.0, "high": 1.0}
    return fields | {"labels": []} | changes


@pytest.mark.parametrize(
    ("given", "shares", "marks"),
    [
        (axis(), [0.0, 0.5, 1.0], ["0", "0.5", "1"]),
        (axis(low=2.0, high=2.0), [0.5, 0.5, 0.5], []),
        (axis(low=0.0, high=2.0, is_whole=True), [0.0, 0.25, 0.5], ["0", "1", "2"]),
        (axis(low=0.0, high=2.0), [0.0, 0.25, 0.5], ["0", "0.5", "1", "1.5", "2"]),
        (axis(scale="log", low=0.25, high=1.0), [0.0, 0.5, 1.0], ["0.25", "1"]),
        (axis(scale="log", low=0.01, high=1.0), [0.0, 0.8495, 1.0], ["0.01", "0.1", "1"]),
        (axis(scale="log", low=0.0, high=1.0), [0.0, 0.5, 1.0], ["0", "0.5", "1"]),
        (axis(scale="category", labels=["a", "b"]), [0.25, 0.5, 0.75], ["a", "b"]),
        (axis(scale="category", labels=list("abcdefghijklmnopqrstuvwxyz")),
         [0.0192, 0.0385, 0.0577], list("aeimquy")),
    ],
)  # fmt: skip
def test_an_axis_of_hyperparameters(given: Any, shares: list[float], marks: list[str]) -> None:
    where, found = parallel._scale(given)
    assert [where(value) for value in (0.0, 0.5, 1.0)] == pytest.approx(shares, abs=1e-3)
    assert [text for _, text in found] == marks
