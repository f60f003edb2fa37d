"""JupyterLab's extension: time to its first paint, smoothness of updates, and costs for others.

    python -m tests.benchmarks.lab            a table, and one line of JSON
    python -m tests.benchmarks.lab --experiments 100 --seconds 4

Everything is real except the training: a master with 1,000 ended experiments of 10 trials each,
and some running ones; JupyterLab; headless Chromium on the same computer. The agent is a stand-in
with eight GPUs that it samples ten times a second.

    first paint   from JupyterLab being ready (`app.restored`) to the frame after the first rows
                  of experiments are in the page; its layout has the sidebar open
    updates       validations reported one by one to the master, while the sidebar shows the list,
                  and then an experiment's page in front. `patches` is the number that reaches the
                  page, as the reader joins changes. At last, the same number of patches is
                  simulated in the page, of five experiments each
    latency       of GET /api/status, one after the other on one connection, alternating between
                  no socket and five sockets that follow the documents of an open tab
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page

from det_jupyter.client import Client
from det_jupyter.connection import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import MasterInfo
from tests.benchmarks.lab_tabs import open_tabs
from tests.benchmarks.lab_world import NUM_GPUS, BusyAgent, add_history, busy_agent, search
from tests.benchmarks.view import percentile
from tests.browser.lab import chromium_page
from tests.integration.master_support import make_request, master_process
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.processes import wait_until

NUM_EXPERIMENTS, TRIALS_EACH = 1000, 10
NUM_TABS, UPDATES_HZ, RELOADS, BLOCKS = 5, 100, 5, 4

# Runs before the page's own scripts: records moments, the durations of frames, and received data.
NOTES = """
window.noted = { frames: [], work_ms: [], frames_in: 0, bytes: 0 };
const look = () => {
  const { noted } = window;
  const app = window.jupyterapp;
  if (app && !noted.asked) {
    noted.asked = true;
    void app.restored.then(() => { noted.ready = performance.now(); });
  }
  if (noted.rows === undefined && document.querySelector('.jp-DetSidebar .det-row')) {
    noted.rows = 0; // in the page; the frame after the one that draws them has them on the screen
    requestAnimationFrame(() => requestAnimationFrame(() => { noted.rows = performance.now(); }));
  }
};
new MutationObserver(look).observe(document, { childList: true, subtree: true });
const request = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = draw => request(now => {
  const began = performance.now();
  draw(now);
  window.noted.work_ms.push(performance.now() - began);
});
const tick = now => { window.noted.frames.push(now); request(tick); };
request(tick);
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  constructor(...args) {
    super(...args);
    if (this.url.includes('/det-jupyter/')) {
      window.noted.socket = this;
      this.addEventListener('message', ({ data }) => {
        window.noted.frames_in += 1;
        window.noted.bytes += data.length ?? data.byteLength;
        const frame = typeof data === 'string' ? JSON.parse(data) : {};
        if (frame.op === 'document' && frame.data.rows) {
          window.noted.list = frame;
        }
      });
    }
  }
  send(text) {
    // The reader knows nothing of the patches that are made up below.
    if (!window.noted.isMakingUp || JSON.parse(text).op !== 'ack') {
      super.send(text);
    }
  }
};
"""
FORGET = """() => {
  Object.assign(window.noted, { frames: [], work_ms: [], frames_in: 0, bytes: 0 });
}"""

# Patches as the reader would send them if it did not join any: of five experiments each.
MAKE_UP = """perSecond => {
  const { noted } = window;
  const { id, data } = noted.list;
  const ids = Object.keys(data.rows).slice(0, 5);
  let version = 1e9;
  noted.isMakingUp = true;
  const whole = { ...noted.list, version };
  noted.socket.dispatchEvent(new MessageEvent('message', { data: JSON.stringify(whole) }));
  const tell = () => {
    const change = (id, name, value) => ({ op: 'replace', path: `/rows/${id}/${name}`, value });
    const changes = ids.flatMap(id => [
      change(id, 'progress', (version % 1000) / 1000),
      change(id, 'best_metric', (version % 777) / 1000)
    ]);
    const patch = { op: 'patch', id, since: version, version: version + 1, data: changes };
    version += 1;
    noted.socket.dispatchEvent(new MessageEvent('message', { data: JSON.stringify(patch) }));
  };
  noted.makingUp = setInterval(tell, 1000 / perSecond);
}"""


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiments", type=int, default=NUM_EXPERIMENTS)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    given = parser.parse_args()
    results: dict[str, float] = {
        "experiments": given.experiments,
        "trials": given.experiments * TRIALS_EACH,
    }
    with tempfile.TemporaryDirectory() as folder:
        home, notebooks = Path(folder, "home"), Path(folder, "notebooks")
        notebooks.mkdir()
        os.environ[paths.HOME_VARIABLE] = str(home)
        add_history(home / "data" / "det.sqlite3", given.experiments, TRIALS_EACH)
        with running(home, notebooks) as (client, lab, agent):
            running_id = begin(client, agent)
            results |= latency(lab, running_id, given.seconds)
            with chromium_page(1400, 1000) as page:
                page.on("pageerror", lambda error: print("page error:", error))
                results |= first_paint(page, lab)
                results |= updates(page, agent, running_id, given.seconds)
    for name, value in results.items():
        print(f"{name:56} {value:>12,.4g}")
    print(json.dumps({name: round(value, 4) for name, value in results.items()}))


@contextmanager
def running(home: Path, notebooks: Path) -> Iterator[tuple[Client, Lab, BusyAgent]]:
    """Run a master, a stand-in for an agent, and JupyterLab."""
    with master_process(home) as master:
        info: MasterInfo = master.start()
        client = Client(Session(info))
        lab = Lab(notebooks)
        lab.start()
        try:
            with busy_agent(info) as agent:
                yield client, lab, agent
        finally:
            lab.stop()
            client.session.close()
            master.end()


def begin(client: Client, agent: BusyAgent) -> int:
    """Start four searches on two GPUs each, and two that wait; return the id of one experiment."""
    created = [client.create(make_request(**search(f"running {i}", 8, 2))).id for i in range(6)]
    agent.report(UPDATES_HZ)

    def num_training() -> int:
        trials = [trial for id in created for trial in client.experiment(id).trials]
        return sum(trial.steps_completed > 0 for trial in trials)

    wait_until(lambda: num_training() == NUM_GPUS, "all GPUs are busy")
    agent.report(4)
    return created[0]


def first_paint(page: Page, lab: Lab) -> dict[str, float]:
    """Return the milliseconds from when JupyterLab is ready until the sidebar has its rows."""
    page.add_init_script(NOTES)
    ui = LabPage(page)
    ui.open(lab.url("benchmark"))
    ui.sidebar.open()
    page.wait_for_selector(".jp-DetSidebar .det-row")
    page.wait_for_timeout(3000)  # the layout is saved a second after its last change
    after, whole = [], []
    for _ in range(RELOADS):
        ui.reload()
        page.wait_for_function("window.noted.rows > 0 && window.noted.ready > 0")
        ready, rows = page.evaluate("[window.noted.ready, window.noted.rows]")
        after.append(rows - ready)
        whole.append(rows)
    return {
        "sidebar painted after Lab is ready, ms, median": percentile(after, 50),
        "sidebar painted after Lab is ready, ms, slowest": max(after),
        "sidebar painted after the page was asked for, ms, median": percentile(whole, 50),
        "rows of experiments in the page": page.locator(".jp-DetSidebar .det-row").count(),
    }


def updates(page: Page, agent: BusyAgent, experiment_id: int, seconds: float) -> dict[str, float]:
    """Return how smoothly the page is updated at 100 updates a second."""
    idle = frames(page, "idle", seconds / 2)
    agent.report(UPDATES_HZ)
    page.wait_for_timeout(2000)
    found = idle | frames(page, "sidebar", seconds)
    LabPage(page).run("det:open-experiment", experiment_id=experiment_id)
    page.wait_for_selector(".jp-DetExperimentPage canvas >> visible=true")
    page.wait_for_timeout(1000)
    found |= frames(page, "sidebar and page", seconds)
    agent.report(4)
    page.evaluate(MAKE_UP, UPDATES_HZ)
    return found | frames(page, "made-up patches, sidebar and page", seconds)


def frames(page: Page, what: str, seconds: float) -> dict[str, float]:
    """Return the frames of the next seconds."""
    page.evaluate(FORGET)
    page.wait_for_timeout(1000 * seconds)
    noted: dict[str, Any] = page.evaluate("window.noted")
    times = noted["frames"]
    taken = [later - earlier for earlier, later in pairwise(times)]
    return {
        f"{what}: frames/s": len(taken) / max(1e-9, (times[-1] - times[0]) / 1000),
        f"{what}: between frames, ms, median": percentile(taken, 50),
        f"{what}: between frames, ms, p95": percentile(taken, 95),
        f"{what}: drawing in a frame, ms, p95": percentile(noted["work_ms"], 95),
        f"{what}: patches/s": noted["frames_in"] / seconds,
        f"{what}: kB/s": noted["bytes"] / seconds / 1000,
    }


def latency(lab: Lab, experiment_id: int, seconds: float) -> dict[str, float]:
    """Return the latency of the Jupyter server, without and with five tabs."""
    without: list[float] = []
    with_tabs: list[float] = []
    num_patches = 0
    for _ in range(BLOCKS):
        without += asked(lab, seconds)
        with open_tabs(lab.root, lab.token, NUM_TABS, experiment_id) as tabs:
            wait_until(lambda: tabs.count() >= 10 * NUM_TABS, "the sockets get documents")
            before = tabs.count()
            with_tabs += asked(lab, seconds)
            num_patches += tabs.count() - before
        time.sleep(1.0)  # until the server has noticed the closed sockets
    found = {"patches/s of all tabs": num_patches / BLOCKS / seconds}
    for percent in (50, 99):
        alone, beside = percentile(without, percent), percentile(with_tabs, percent)
        found |= {
            f"/api/status without tabs, ms, p{percent}": alone,
            f"/api/status with {NUM_TABS} tabs, ms, p{percent}": beside,
            f"added by {NUM_TABS} tabs, ms, p{percent}": beside - alone,
        }
    return found


def asked(lab: Lab, seconds: float) -> list[float]:
    """Send requests for this time; return the milliseconds of each answer."""
    address = urlsplit(lab.root)
    server = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=30)
    headers = {"Authorization": f"token {lab.token}"}
    taken = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.perf_counter()
        server.request("GET", f"{address.path}api/status", headers=headers)
        answer = server.getresponse()
        answer.read()
        taken.append(1000 * (time.perf_counter() - began))
        assert answer.status == 200, answer.status
        time.sleep(0.005)
    server.close()
    return taken


if __name__ == "__main__":
    main()
