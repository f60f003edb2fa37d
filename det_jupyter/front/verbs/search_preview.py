"""The preview of a search as text with a table and as HTML with a chart; its verb; estimates.

In the chart each bracket is a row of bars, one for each rung; a bar's height is the share of the
bracket's trials that train up to that rung.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape

from det_jupyter.client import Client, Experiment
from det_jupyter.client.diagnosing.estimating import estimate
from det_jupyter.client.submitting.drafts import Draft, make_draft, preview_draft
from det_jupyter.client.tables import plain_table
from det_jupyter.config import ExperimentConfig, read_yaml
from det_jupyter.contract.messages import (
    CreateExperiment,
    PlannedBracket,
    PreviewView,
    TrialEstimate,
)
from det_jupyter.contract.values.text import (
    count,
    hparam_text,
    length,
    rough_duration,
    short_time,
    singular_unit,
    size,
)
from det_jupyter.errors import ConfigError
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import html_table
from det_jupyter.front.verbs.yaml_input import set_from_yaml

_NEEDS = ("trial", "parameters", "gradients", "optimizer", "activations", "peak", "a batch")
_MAX_DRAWN = 3  # hyperparameters that are shown with an estimate
_STEP_WIDTH, _HEIGHT, _GAP, _LABEL = 84, 72, 28, 26
_MAX_BRACKETS = 8
_COLOR = "#3b82c4"
_RANGES = ("hyperparameter", "range", "such as")
_LEFT = ' style="text-align:left"'
_RIGHT = ' style="text-align:right"'


def render_text(view: PreviewView, at: float) -> str:
    """Return the preview as lines of text; `at` is the present time."""
    ranges = [plain_table(_RANGES, _range_rows(view)), ""] if view.ranges else []
    table = plain_table(_header(view), _rows(view))
    lines = [_title(view), "", *ranges, table, "", _training(view), _time(view, at)]
    if view.estimates:
        needs = plain_table(_NEEDS, _need_rows(view))
        lines += ["", _way(view), "", needs, "", *_verdicts(view)]
    return "\n".join(lines)


def _title(view: PreviewView) -> str:
    """Return the search in one line."""
    return f"{view.searcher}: {count(view.num_trials, 'trial')}, judged by {view.metric}"


def _header(view: PreviewView) -> tuple[str, ...]:
    """Return the headings of the table: one column for each bracket, if there are several."""
    brackets = [f"bracket {number}" for number in range(1, len(view.brackets) + 1)]
    return ("train for", "trials that end there", *(brackets if len(brackets) > 1 else []))


def _rows(view: PreviewView) -> list[tuple[str, ...]]:
    """Return a row for each length."""
    found = []
    for planned in view.trials:
        counts = [planned.num_trials]
        if len(view.brackets) > 1:
            counts += [
                sum(p.num_trials for p in bracket.trials if p.length == planned.length)
                for bracket in view.brackets
            ]
        found.append((length(planned.length), *(f"{number:,}" for number in counts)))
    return found


def _range_rows(view: PreviewView) -> list[tuple[str, ...]]:
    return [(each.name, each.range, ", ".join(each.samples)) for each in view.ranges]


def _training(view: PreviewView) -> str:
    text = f"Training in all: {length({view.unit: round(view.expected)})}"
    if view.least != view.most:
        text += f" (least {view.least:,.0f}, most {view.most:,.0f})"
    if view.expected < view.full:
        share = view.expected / view.full
        text += f"; {share:.0%} of training every trial to the end"
    return f"{text}."


def _time(view: PreviewView, at: float) -> str:
    if view.pace is None or view.seconds is None:
        return f"How long it takes is not known: {view.no_pace}."
    return (
        f"On {count(view.slots, 'slot')}, {count(view.concurrent, 'trial')} at once: "
        f"about {rough_duration(view.seconds)}, done about {short_time(at + view.seconds, at)} "
        f"({view.pace.seconds_per_unit:.3g} s a {singular_unit(view.pace.unit)}, "
        f"{view.pace.source})."
    )


def _way(view: PreviewView) -> str:
    """Return how the estimates were made, above their table."""
    first = view.estimates[0]
    on = f"on {count(first.slots, 'slot')}" if first.slots else "without slots"
    if all(each.way == "slot" for each in view.estimates):
        return f"Memory of a rank, measured with some batches {on}:"
    why = "no slot is free" if first.slots < 2 else f"{first.slots} slots are not free"
    if any(each.problem and each.peak_bytes for each in view.estimates):
        why = "a batch did not fit"
    return f"Memory of a rank, computed on tensors without values, as {why}:"


def _need_rows(view: PreviewView) -> list[tuple[str, ...]]:
    return [
        (
            _which(each),
            *map(_size, (each.parameter_bytes, each.gradient_bytes, each.optimizer_bytes)),
            *map(_size, (each.activation_bytes, each.peak_bytes)),
            "-" if each.seconds_per_batch is None else f"{each.seconds_per_batch:.2g} s",
        )
        for each in view.estimates
    ]


def _which(each: TrialEstimate) -> str:
    """Return a trial by its place and the first of the hyperparameters that are drawn."""
    drawn = [f"{name}={hparam_text(value)}" for name, value in each.hparams.items()]
    return f"{each.trial} ({', '.join(drawn[:_MAX_DRAWN])})" if drawn else each.trial


def _size(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else size(num_bytes)


def _verdicts(view: PreviewView) -> list[str]:
    """Return a sentence for each trial that fails or does not fit, or one that all fit."""
    lines, most = [], "How much memory the slots have is not known."
    for each in sorted(view.estimates, key=lambda each: each.peak_bytes or 0):
        if each.problem and each.way == "meta" and each.peak_bytes is None:
            lines.append(
                f"The {each.trial} trial cannot be computed without values: {each.problem}; "
                "estimate it again when slots are free"
            )
        elif each.problem:
            lines.append(f"The {each.trial} trial could not train a batch: {each.problem}")
        if each.peak_bytes is None or not each.slot_bytes:
            continue
        # Ranks on CPUs share the memory of their computer.
        needed = each.peak_bytes * (1 if each.is_gpu else max(1, each.slots))
        where = "a GPU" if each.is_gpu else "the computer"
        if needed > each.slot_bytes:
            lines.append(
                f"The {each.trial} trial does not fit: at its peak it has {size(needed)}, and "
                f"{where} has {size(each.slot_bytes)}."
            )
        else:
            most = f"At the peak {size(needed)} of the {size(each.slot_bytes)} that {where} has."
    return lines or [most]


def render_page(view: PreviewView, at: float) -> str:
    """Return the preview as HTML that needs neither script nor style sheet."""
    ranges = html_table(_RANGES, _range_rows(view), _LEFT) if view.ranges else ""
    needs = ""
    if view.estimates:
        table = html_table(_NEEDS, _need_rows(view), _RIGHT)
        needs = f"{_paragraphs([_way(view)])}{table}{_paragraphs(_verdicts(view))}"
    return (
        f"<div><p><b>{escape(_title(view))}</b></p>{_chart(view)}{ranges}"
        f"{html_table(_header(view), _rows(view), _RIGHT)}"
        f"{_paragraphs([_training(view), _time(view, at)])}{needs}</div>"
    )


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _chart(view: PreviewView) -> str:
    brackets = view.brackets[:_MAX_BRACKETS]
    if max(len(bracket.trials) for bracket in brackets) < 2:
        return ""  # every trial trains to the end
    left, parts = 0, []
    for bracket in brackets:
        parts.append(_bars(bracket, left))
        left += _STEP_WIDTH * len(bracket.trials) + _GAP
    width, height = left - _GAP, _HEIGHT + _LABEL
    label = escape(f"How many trials train how long, in {len(view.brackets)} bracket(s)")
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        f'style="width:100%;max-width:{width}px;height:auto;display:block">{"".join(parts)}</svg>'
    )


def _bars(bracket: PlannedBracket, left: int) -> str:
    counts = [planned.num_trials for planned in bracket.trials]
    parts = []
    for index, planned in enumerate(bracket.trials):
        reaching = sum(counts[index:])
        tall = max(2.0, (_HEIGHT - 12) * reaching / sum(counts))
        x, top = left + index * _STEP_WIDTH, _HEIGHT - tall
        middle = x + _STEP_WIDTH / 2
        parts.append(
            f'<rect x="{x}" y="{top:.1f}" width="{_STEP_WIDTH - 2}" height="{tall:.1f}" '
            f'fill="{_COLOR}" fill-opacity="{0.45 + 0.55 * index / len(counts):.2f}"/>'
            + _text(middle, top - 3, f"{reaching:,}")
            + _text(middle, _HEIGHT + 12, length(planned.length))
        )
    return "".join(parts)


def _text(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="9" '
        f'fill="currentColor">{escape(text)}</text>'
    )


def preview_with_estimates(
    client: Client,
    draft: Draft,
    config: ExperimentConfig,
    request: CreateExperiment,
    seconds_per_batch: float | None = None,
) -> PreviewView:
    """Return the preview of an experiment with the memory of its trials, which is measured.

    Args:
        draft: Its configuration as it was written.
        config: The same with defaults.
        request: The request that would submit it.
        seconds_per_batch: Duration of a batch; by default the measured one.

    Raises:
        ConfigError: The entrypoint is no class, or no trial fits into a slot.
        RankFailed: The first trial fails.
    """
    view = preview_draft(client, draft, seconds_per_batch)
    try:
        found = estimate(client, request, config, lambda number: Experiment(client, number))
    except ConfigError as error:
        raise draft.located(error.problems) from None
    if seconds_per_batch is None and found[0].seconds_per_batch is not None:
        view = preview_draft(client, draft, found[0].seconds_per_batch)
        if view.pace is not None:
            source = view.pace.source.replace("as given", "measured now")
            view = view.model_copy(
                update={"pace": view.pace.model_copy(update={"source": source})}
            )
    return view.model_copy(update={"estimates": found})


def preview(call: Call) -> str:
    """Return what a search would train."""
    above = f"{call.reader.above_yaml}{call.reader.det} preview-search"
    return set_from_yaml(call, lambda text: _preview(call, text), above)


def _preview(call: Call, text: str) -> str:
    draft = make_draft(lambda: call.client, read_yaml(text), call.options.template)
    view = preview_draft(call.client, draft, call.options.seconds_per_batch)
    notes = [f"Note: {notice}" for notice in view.notices]
    return "\n".join([render_text(view, time.time()), *notes])
