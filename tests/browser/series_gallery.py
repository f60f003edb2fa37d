"""Draws the tabs of timings and of the system for sample experiments.

python -m tests.browser.series_gallery FOLDER [STATIC [NAME...]]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from playwright.sync_api import Page

from det_jupyter.contract.messages import SeriesPage
from det_jupyter.contract.messages.verdicts import VerdictKind
from det_jupyter.front.notebook.handles.front_end import STATIC_DIR
from det_jupyter.view import ViewState, build_view_state
from det_jupyter.view.model.trial_state import TrialDetails
from det_jupyter.view.model.verdict_state import VERDICT_WORDS, VerdictState
from tests.browser.gallery import THEMES, page_of
from tests.browser.lab import chromium_page
from tests.browser.series_samples import answers, nothing_measured, system, timings
from tests.unit.view import view_cluster_samples as clusters
from tests.unit.view.view_samples import CREATED_AT, digits_curves, experiment, trial

# Answers a question about series as the kernel would: with the requested part of the samples.
ANSWERING = """
const ANSWERS = %s;
const others = window.model.send;
window.model.send = message => {
  const { type, request, query } = message;
  if (type !== 'series') { others(message); return; }
  const which = query.columns > 1 ? '' : query.sources ? '.parts' : '.ranks';
  const all = ANSWERS[query.of + which];
  const series = all.series
    .filter(one => !query.sources || query.sources.includes(one.source))
    .map(one => query.axis === 'time' ? one : { ...one, x: one.x.map((_, i) => 50 * i) });
  const answer = { type, request, error: '', page: { ...all, series } };
  setTimeout(() => listeners['msg:custom'].forEach(listener => listener(answer)), 0);
};
WIDGET.render("""
WIDTHS = {"narrow": 400, "usual": 1180, "wide": 3840}
EMPTY = SeriesPage(series=[], began_at=None)


def samples() -> dict[str, tuple[str, ViewState, tuple[SeriesPage, SeriesPage]]]:
    """Return, by name: the tab, the state, and the measured series."""
    running = state_with(verdict("straggler"))
    healthy = state_with(verdict("healthy"))
    unknown = state_with(verdict("unknown"))
    queued = build_view_state(experiment(clusters.waiting_trial()), [], [], CREATED_AT + 42)
    slow = timings(4, 300, slow_rank=2)
    no_gpu = nothing_measured("no NVIDIA driver was found")
    some = system(8, 300, missing="the driver does not report it (needs 525 or newer)")
    return {
        "timings": ("timings", running, (slow, some)),
        "timings1": ("timings", healthy, (timings(1, 40), some)),
        "timings64": ("timings", running, (timings(64, 60, slow_rank=7), some)),
        "notimings": ("timings", unknown, (EMPTY, EMPTY)),
        "system": ("system", running, (slow, some)),
        "nogpu": ("system", running, (slow, no_gpu)),
        "system64": ("system", running, (slow, system(64, 60))),
        "queued": ("system", queued, (EMPTY, EMPTY)),
        "overview": ("overview", running, (slow, some)),
    }


def state_with(found: VerdictState) -> ViewState:
    """Return a running experiment whose trial has a verdict."""
    state = build_view_state(
        experiment(trial(progress=0.75, steps_completed=100)), digits_curves(100), [],
        CREATED_AT + 42,
    )  # fmt: skip
    one: TrialDetails = state["trials"][0]
    one["verdict"] = found
    return state


_NETWORK = (
    "exchanges between 2 computers take 27 ms of 60 ms a batch; node-b sends 48 MB and receives "
    "48 MB over eth0, node-c sends 48 MB and receives 48 MB over eth0"
)


def verdict(kind: VerdictKind) -> VerdictState:
    """Return a verdict of this kind on a trial."""
    shares: dict[VerdictKind, float] = {
        "compute": 0.44, "input": 0.03, "communication": 0.07, "straggler": 0.38,
        "checkpoint": 0.01, "validation": 0.04, "residual": 0.03,
    }  # fmt: skip
    sentences: dict[str, str] = {
        "straggler": "38 % of the time, three ranks wait for rank 2, which waits for its data: "
        "try data.num_workers: 4.",
        "healthy": "Nothing to gain here: 93 % of the time is compute.",
        "unknown": "Too early to judge: 12 of 50 batches.",
    }
    causes = [
        {
            "kind": kind, "word": VERDICT_WORDS[kind], "share": 0.38, "rank": 2,
            "evidence": ["Rank 2 waits 21.8 ms per batch for data; the others 0.8 ms.",
                         "Its loaders use 99 % of one core; the machine's other cores are free."],
            "advice": ["data.num_workers: 4 instead of 1 on rank 2's machine.",
                       "Cache decoded images: ds.cache('train')."],
        },
        {
            "kind": "communication", "word": VERDICT_WORDS["communication"], "share": 0.07,
            "rank": None, "evidence": ["Gradients of 97 MB in 3.4 ms."],
            "advice": ["optimizations.gradient_compression: true halves them."],
        },
    ]  # fmt: skip
    found = {
        "kind": kind,
        "word": VERDICT_WORDS[kind],
        "sentence": sentences[kind],
        "causes": causes if kind == "straggler" else [],
        "network": _NETWORK if kind == "straggler" else "",
        "shares": [
            {"kind": one, "word": VERDICT_WORDS[one], "share": share}
            for one, share in (shares if kind != "unknown" else {}).items()
        ],
        "at": CREATED_AT + 40,
        "batches": 100,
    }
    return found  # type: ignore[return-value]  # written as JSON


def page_with(state: ViewState, pages: Sequence[SeriesPage], static: Path) -> str:
    """Return a page that shows the live view of `state`, and answers the view's questions."""
    html = page_of(state, static)
    head, begin, end = html.rpartition("WIDGET.render(")
    assert begin
    return f"{head}{ANSWERING % json.dumps(answers(pages))}{end}"


def draw(page: Page, html: str, tab: str, theme: str, target: Path) -> None:
    """Load `html` in a theme, open a tab, and save its picture."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_content(html)
    variables = ";".join(f"{name}:{value}" for name, value in THEMES[theme].items())
    page.evaluate("style => document.documentElement.setAttribute('style', style)", variables)
    page.click(f"[role=tab][aria-controls$='-{tab}-panel']")
    page.wait_for_timeout(700)
    page.screenshot(path=target, full_page=True)


def main(folder: Path, static: Path = STATIC_DIR, names: Sequence[str] = ()) -> None:
    """Draw all samples, or those named, in both themes; the first two narrow and wide."""
    all_samples = samples()
    for width, pixels in WIDTHS.items():
        with chromium_page(pixels, 900) as page:
            page.on("pageerror", lambda error: print("page error:", error))
            page.on("console", lambda message: print("console:", message.text))
            drawn = names or (all_samples if width == "usual" else ["timings", "system"])
            for name, theme in product(drawn, THEMES):
                tab, state, pages = all_samples[name]
                html = page_with(state, pages, static)
                draw(page, html, tab, theme, folder / f"{name}-{width}-{theme}.png")


if __name__ == "__main__":
    folder, *others = sys.argv[1:]
    main(Path(folder), Path(others[0]) if others else STATIC_DIR, others[1:])
