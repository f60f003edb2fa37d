"""The live view in headless Chromium: latency, smoothness and cost of drawing.

    python -m tests.benchmarks.view            a table, and one line of JSON
    python -m tests.benchmarks.view --points 100000

Times are measured in the page, with a stand-in for the kernel that answers at once; the trial with
a million points is in a real master. The time of a frame is that of the page's main thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
from playwright.sync_api import Page

from det_jupyter.client import Client
from det_jupyter.client.answers.answering import series_answer
from det_jupyter.connection import Session
from det_jupyter.contract.messages import GangStarted, RankProcess, SeriesPage, SlotView
from det_jupyter.front.notebook.handles.front_end import STATIC_DIR
from det_jupyter.view import ViewState
from tests.benchmarks import series_history
from tests.benchmarks.quick import arguments
from tests.browser.gallery import page_of
from tests.browser.lab import chromium_page
from tests.browser.series_gallery import state_with, verdict
from tests.browser.series_samples import answers, system, timings
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    MasterProcess,
    make_registration,
    make_request,
)

QUICK = "--points 2000"
KEYS = {  # keys of the JSON in the last line
    "update to screen, ms, median", "update to screen, ms, p95", "8 x 6 x 3600, frame, ms, median",
    "8 x 6 x 3600, frame, ms, p95", "8 x 6 x 3600, frames for an update of all",
    "8 x 6 x 3600, answers taken in for an update, ms, median",
    "8 x 6 x 3600, CPU of the page for an update, ms", "8 x 6 x 3600, crosshair on all, ms, p95",
    "bytes/s, timings of 8 ranks", "bytes/s, system of 8 ranks", "many points, state made, s",
    "many points, page loaded and drawn, s", "many points, drawn, s", "many points, opened, s",
    "many points, metrics tab drawn, s", "bytes of widget.js, gzipped",
    "bytes of tabs.js, gzipped", "bytes of widget.css, gzipped",
}  # fmt: skip

NUM_GPUS, NUM_POINTS, NUM_RANKS = 8, 3600, 8
SIX = ("gpu_util", "gpu_free_memory", "gpu_power", "gpu_temperature", "pcie_sent", "nvlink_sent")
ANSWERS_OF_UPDATE = 3  # the system's series are requested in three groups of names
UPDATES, LIVE_S = 100, 12
BUNDLE = ("widget.js", "tabs.js", "widget.css")

# Runs before the view's own script: records the work of the main thread in each frame.
FRAMES = """
{
  window.frames_ms = [];
  const request = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = draw => request(now => {
    const began = performance.now();
    draw(now);
    window.frames_ms.push(performance.now() - began);
  });
}
"""

# The kernel: answers with the data from `since` to `now`, in the requested columns.
KERNEL = """
const ANSWERS = %s;
window.kernel = { now: Infinity, isCapped: false, bytes: 0, handled_ms: [] };
window.renderedAt = performance.now();
const others = window.model.send;
window.model.send = message => {
  const { type, request, query } = message;
  if (type !== 'series') { others(message); return; }
  if (window.askKernel) {
    window.askKernel(message).then(answer => tell({ type, request, error: '', ...answer }));
    return;
  }
  const which = query.columns > 1 ? '' : query.sources ? '.parts' : '.ranks';
  const all = ANSWERS[query.of + which];
  const cut = one => {
    const from = query.since === null ? 0 : one.x.findIndex(x => x >= query.since);
    const end = Math.min(one.x.length, window.kernel.now);
    const stride = window.kernel.isCapped ? Math.ceil((end - from) / query.columns) : 1;
    const part = name => from < 0 ? [] : one[name].slice(from, Math.max(from, end))
      .filter((_, i) => i %% stride === 0);
    return { ...one, x: part('x'), low: part('low'), mid: part('mid'), high: part('high') };
  };
  const series = all.series
    .filter(one => !query.sources || query.sources.includes(one.source))
    .filter(one => !query.names || query.names.includes(one.name))
    .map(one => query.columns > 1 ? cut(one) : one);
  setTimeout(() => tell({ type, request, error: '', page: { ...all, series } }), 0);
};
const tell = answer => {
  const text = JSON.stringify(answer);
  window.kernel.bytes += text.length;
  const fresh = JSON.parse(text);
  const began = performance.now();
  listeners['msg:custom'].forEach(listener => listener(fresh));
  // A message comes after what the answer has resolved, and usually before the next frame.
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => window.kernel.handled_ms.push(performance.now() - began);
  port2.postMessage(null);
};
WIDGET.render("""

# 100 updates a second: each is on the screen when the frame after its drawing has begun.
UPDATE = """async ([updates, state]) => {
  const taken = [];
  for (let i = 0; i < updates; i += 1) {
    const began = performance.now();
    const steps = `step ${i}`;
    const grown = value => value === null ? null : value * (1 + i / 1000);
    const charts = state.charts.map(chart => ({ ...chart, series: chart.series.map(one => (
      { ...one, values: one.values.map(grown) })) }));
    const as_of = state.as_of + i / 100;
    const operations = Object.entries({ as_of, charts, summary: [steps] }).map(
      ([name, value]) => ({ op: 'replace', path: `/${name}`, value }));
    window.model.set('patch', { since: 1, operations });
    window.model.tell('change:patch');
    taken.push(new Promise(resolve => requestAnimationFrame(() => setTimeout(() =>
      resolve(document.querySelector('.det-header').textContent.includes('step')
        ? performance.now() - began : NaN)))));
    await new Promise(resolve => setTimeout(resolve, 10));
  }
  return Promise.all(taken);
}"""


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=series_history.NUM_POINTS)
    given = parser.parse_args(arguments(QUICK))
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home, long_trial(Path(home), given.points) as client:
        results |= measured(client)
    results |= bundle()
    for name, value in results.items():
        print(f"{name:52} {value:>12,.4g}")
    print(json.dumps({name: round(value, 4) for name, value in results.items()}))


def measured(client: Client) -> dict[str, float]:
    """Return the results of the browser."""
    results: dict[str, float] = {}
    with chromium_page(1180, 900) as page:
        page.on("pageerror", lambda error: print("page error:", error))
        results |= updates(page)
        results |= crowded(page)
        results |= traffic(page)
        results |= opened(page, client)
    return results


def load(page: Page, state: ViewState, tab: str, pages: tuple[SeriesPage, SeriesPage]) -> None:
    """Open a page with the view at a tab."""
    head, found, tail = page_of(state, STATIC_DIR, tab).rpartition("WIDGET.render(")
    assert found
    html = f"{head}{KERNEL % json.dumps(answers(pages))}{tail}"
    page.goto("about:blank")  # ends the scripts of the page before
    scripts = f"<script>{FRAMES}</script>\n<script type=module>"
    page.set_content(html.replace("<script type=module>", scripts, 1))


def updates(page: Page) -> dict[str, float]:
    """Return the time of a state to the screen, at 100 states a second."""
    state = state_with(verdict("straggler"))
    load(page, state, "overview", (timings(1, 10), system(0, 10)))
    page.wait_for_selector("canvas")
    taken = page.evaluate(UPDATE, [UPDATES, state])
    return {
        "update to screen, ms, median": percentile(taken, 50),
        "update to screen, ms, p95": percentile(taken, 95),
    }


def crowded(page: Page) -> dict[str, float]:
    """Return the times of frames that draw 8 GPUs, 6 series and 3,600 points of each."""
    sampled = system(NUM_GPUS, NUM_POINTS)
    sampled.series[:] = [one for one in sampled.series if one.name in SIX]
    load(page, state_with(verdict("healthy")), "system", (timings(1, 10), sampled))
    page.wait_for_function("document.querySelectorAll('.det-panel canvas').length === 6")
    page.wait_for_timeout(500)
    page.evaluate("() => { window.frames_ms = []; window.kernel.handled_ms = []; }")
    cpu_s = page_cpu_s()
    page.wait_for_timeout(10_000)
    cpu_s = page_cpu_s() - cpu_s
    frames, handled = page.evaluate("() => [window.frames_ms, window.kernel.handled_ms]")
    drawn = [one for one in frames if one > 0.2]
    num_updates = max(1, len(handled) / ANSWERS_OF_UPDATE)
    taken_in = [sum(each) for each in zip(*[iter(handled)] * ANSWERS_OF_UPDATE, strict=False)]
    moves = page.evaluate(
        """() => {
          const over = document.querySelector('.det-panel .u-over');
          const { left, top, width } = over.getBoundingClientRect();
          return Array.from({ length: 200 }, (_, i) => {
            const began = performance.now();
            over.dispatchEvent(new MouseEvent('mousemove', {
              bubbles: true, clientX: left + (width * i) / 200, clientY: top + 40 }));
            return performance.now() - began;
          });
        }"""
    )
    return {
        "8 x 6 x 3600, frame, ms, median": percentile(drawn, 50),
        "8 x 6 x 3600, frame, ms, p95": percentile(drawn, 95),
        "8 x 6 x 3600, frames for an update of all": len(drawn) / num_updates,
        "8 x 6 x 3600, answers taken in for an update, ms, median": percentile(taken_in, 50),
        "8 x 6 x 3600, CPU of the page for an update, ms": 1000 * cpu_s / num_updates,
        "8 x 6 x 3600, crosshair on all, ms, p95": percentile(moves, 95),
    }


def page_cpu_s() -> float:
    """Return the seconds of CPU that the processes of pages have used."""
    pages = (
        process
        for process in psutil.Process().children(recursive=True)
        if "--type=renderer" in process.cmdline()
    )
    return sum(sum(process.cpu_times()[:2]) for process in pages)


def traffic(page: Page) -> dict[str, float]:
    """Return the bytes per second of an open view whose trial trains."""
    found = {}
    for tab, pages in {
        "timings": (timings(NUM_RANKS, NUM_POINTS), system(0, 10)),
        "system": (timings(1, 10), system(NUM_GPUS, NUM_POINTS)),
    }.items():
        load(page, state_with(verdict("healthy")), tab, pages)
        page.evaluate(f"() => {{ kernel.now = {NUM_POINTS - 100}; kernel.isCapped = true; }}")
        page.wait_for_timeout(2500)
        page.evaluate("() => { kernel.bytes = 0; setInterval(() => { kernel.now += 1; }, 2000); }")
        page.wait_for_timeout(1000 * LIVE_S)
        found[f"bytes/s, {tab} of 8 ranks"] = page.evaluate("kernel.bytes") / LIVE_S
    return found


def opened(page: Page, client: Client) -> dict[str, float]:
    """Return the time to open a trial of many points, with a real master's answers."""
    client.document("experiments").fetch()  # starts the reader
    began = time.monotonic()
    state = cast(ViewState, client.document("experiment", experiment_id=1).fetch())
    built = time.monotonic() - began
    page.expose_function(
        "askKernel", lambda message: series_answer(client, 1, message).model_dump()
    )
    began = time.monotonic()
    load(page, state, "overview", (timings(1, 10), system(0, 10)))
    page.wait_for_selector(".det-board canvas")
    loaded = time.monotonic() - began
    shown = page.evaluate("(performance.now() - window.renderedAt) / 1000")
    began = time.monotonic()
    page.click("[role=tab][aria-controls$='-metrics-panel']")
    page.wait_for_selector(".det-panel[data-tab=metrics] canvas")
    return {
        "many points, state made, s": built,
        "many points, page loaded and drawn, s": loaded,
        "many points, drawn, s": shown,
        "many points, opened, s": built + shown,
        "many points, metrics tab drawn, s": time.monotonic() - began,
    }


@contextmanager
def long_trial(home: Path, num_points: int) -> Iterator[Client]:
    """Run a master with a running trial that has this many points of a metric."""
    database = home / "data" / "det.sqlite3"
    database.parent.mkdir()
    bench = Bench(database)
    registration = make_registration("first")
    registration.slots = [SlotView(id=0, kind="cuda", index=0, name="GPU", uuid="GPU-0")]
    bench.service.register(AGENT, registration)
    asyncio.run(bench.service.submit(make_request(resources={"slots_per_trial": 1})))
    ranks = [RankProcess(rank=0, pid=10, connection_file="c", output_file="o")]
    bench.report(GangStarted(allocation_id=RUN, at=time.time(), ranks=ranks))
    series_history.add_points(bench, num_points)
    bench.service.close()
    master = MasterProcess(home)
    try:
        yield Client(Session(master.start()))
    finally:
        master.kill()


def bundle() -> dict[str, float]:
    """Return the bytes that a browser loads."""
    files = {name: (STATIC_DIR / name).read_bytes() for name in BUNDLE}
    return {f"bytes of {name}, gzipped": len(gzip.compress(data)) for name, data in files.items()}


def percentile(values: list[Any], percent: int) -> float:
    """Return this percentile; of few values, the highest."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]) if ordered else 0.0


if __name__ == "__main__":
    main()
