"""A preview with estimates: how the memory of trials is shown, and what is said about it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.submitting.drafts import Draft
from det_jupyter.config import parse_config, read_yaml
from det_jupyter.contract.messages import Pace, PreviewView, TrialEstimate
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.front.verbs import search_preview
from det_jupyter.front.verbs.search_preview import (
    preview_with_estimates,
    render_page,
    render_text,
)
from tests.unit.front.notebook.handles.test_search_handles import preview_of

AT = 0.0
GB = 10**9


def estimate(**changes: Any) -> TrialEstimate:
    fields: dict[str, Any] = {
        "trial": "first", "hparams": {"width": 64}, "way": "slot", "slots": 1, "is_gpu": True,
        "parameter_bytes": GB, "gradient_bytes": GB, "optimizer_bytes": 2 * GB,
        "activation_bytes": 5 * GB, "peak_bytes": 9 * GB, "slot_bytes": 24 * GB,
        "seconds_per_batch": 0.25,
    }  # fmt: skip
    return TrialEstimate.model_validate(fields | changes)


NOTHING = dict.fromkeys(
    ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "peak_bytes")
)


def shown(*estimates: TrialEstimate) -> list[str]:
    """Return the lines about estimates in a preview."""
    lines = render_text(preview_of(estimates=list(estimates)), AT).splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("Memory")) :]


def test_estimates_are_a_table_and_a_sentence_about_the_largest() -> None:
    largest = estimate(trial="largest", hparams={"width": 256}, peak_bytes=20 * GB)
    assert shown(largest, estimate()) == [
        "Memory of a rank, measured with some batches on 1 slot:",
        "",
        "trial                parameters  gradients  optimizer  activations  peak    a batch",
        "largest (width=256)  1.0 GB      1.0 GB     2.0 GB     5.0 GB       20 GB   0.25 s",
        "first (width=64)     1.0 GB      1.0 GB     2.0 GB     5.0 GB       9.0 GB  0.25 s",
        "",
        "At the peak 20 GB of the 24 GB that a GPU has.",
    ]
    page = render_page(preview_of(estimates=[estimate()]), AT)
    assert '<td style="text-align:right">5.0 GB</td>' in page
    assert page.endswith("<p>At the peak 9.0 GB of the 24 GB that a GPU has.</p></div>")
    assert "Memory" not in render_text(preview_of(), AT)


@pytest.mark.parametrize(
    ("given", "head", "verdicts"),
    [
        (estimate(peak_bytes=30 * GB), "measured with some batches on 1 slot",
         ["The first trial does not fit: at its peak it has 30 GB, and a GPU has 24 GB."]),
        (estimate(is_gpu=False, slots=3), "measured with some batches on 3 slots",
         ["The first trial does not fit: at its peak it has 27 GB, and the computer has 24 GB."]),
        (estimate(slots=0, is_gpu=False), "measured with some batches without slots",
         ["At the peak 9.0 GB of the 24 GB that the computer has."]),
        (estimate(way="meta"), "computed on tensors without values, as no slot is free",
         ["At the peak 9.0 GB of the 24 GB that a GPU has."]),
        (estimate(way="meta", slots=2, problem="NotImplementedError: aten.x", **NOTHING),
         "computed on tensors without values, as 2 slots are not free",
         ["The first trial cannot be computed without values: NotImplementedError: aten.x; "
          "estimate it again when slots are free"]),
        (estimate(way="meta", problem="OutOfMemoryError: 20 GB", peak_bytes=30 * GB),
         "computed on tensors without values, as a batch did not fit",
         ["The first trial could not train a batch: OutOfMemoryError: 20 GB",
          "The first trial does not fit: at its peak it has 30 GB, and a GPU has 24 GB."]),
        (estimate(slot_bytes=None), "measured with some batches on 1 slot",
         ["How much memory the slots have is not known."]),
    ],
)  # fmt: skip
def test_what_fails_or_does_not_fit_is_said(
    given: TrialEstimate, head: str, verdicts: list[str]
) -> None:
    lines = shown(given)
    assert lines[0] == f"Memory of a rank, {head}:"
    assert lines[5:] == verdicts


class Master:
    """Answers previews."""

    def __init__(self) -> None:
        self.paces: list[float | None] = []

    def preview(self, request: Any) -> PreviewView:
        self.paces.append(request.seconds_per_batch)
        pace = None
        if request.seconds_per_batch is not None:
            pace = Pace(unit="batches", seconds_per_unit=0.25, source="as given")
        return preview_of(pace=pace)


def test_the_measured_time_of_a_batch_is_the_pace_unless_one_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = {"entrypoint": "Net", "searcher": {"name": "single", "metric": "error",
                "max_length": {"batches": 1}}}  # fmt: skip
    draft = Draft(reading=read_yaml("entrypoint: Net"), document=document)
    config = parse_config(document, default_seed=0)
    monkeypatch.setattr(search_preview, "estimate", lambda *_: [estimate()])
    master = Master()
    client = cast("Client", master)
    view = preview_with_estimates(client, draft, config, cast("Any", None))
    assert (master.paces, view.estimates) == ([None, 0.25], [estimate()])
    assert view.pace is not None
    assert view.pace.source == "measured now"
    view = preview_with_estimates(client, draft, config, cast("Any", None), 2.0)
    assert master.paces[2:] == [2.0]

    def refuse(*_: Any) -> Any:
        raise ConfigError([Problem("entrypoint", "Net is a function")])

    monkeypatch.setattr(search_preview, "estimate", refuse)
    with pytest.raises(ConfigError, match="line 1: entrypoint: Net is a function"):
        preview_with_estimates(client, draft, config, cast("Any", None))
