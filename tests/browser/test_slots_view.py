"""Slots and queue in the live view of a real JupyterLab, with a real queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from det_jupyter.client import Client
from tests.browser.lab import (
    CHROMIUM,
    KERNELS_ALONE,
    chromium_page,
    jupyter_lab,
    open_notebook,
    run_all,
)
from tests.processes import det_home, wait_until
from tests.trials import TRIAL_SOURCE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium"),
]

SUBMIT = """%%det_experiment
name: {name}
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: 16, pause_s: 0.05}}
searcher: {{name: single, metric: error, max_length: {{batches: 4000}}}}
min_validation_period: {{batches: 20}}
resources: {{slots_per_trial: 2}}
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with det_home(tmp_path / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
        client = home.client()
        yield client
        for view in client.experiments():
            client.command(view.id, "kill")
        wait_until(
            lambda: all(v.state.is_terminal for v in client.experiments()), "all have ended"
        )
        client.session.close()


@pytest.fixture
def page(client: Client, tmp_path: Path) -> Iterator[Page]:
    """Return a page with a notebook that has submitted two experiments, for which is no room."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    submits = [SUBMIT.format(name=name) for name in ("first", "second")]
    cells = ["%load_ext det_jupyter", TRIAL_SOURCE, *submits]
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(document, folder / "book.ipynb")
    with (
        jupyter_lab(folder, arguments=KERNELS_ALONE) as address,
        chromium_page(1280, 1600) as page,
    ):
        open_notebook(page, address, "book.ipynb")
        run_all(page)
        yield page


def view_of(page: Page, name: str) -> Locator:
    view = page.locator(".det-view", has=page.locator(".det-name", has_text=name))
    view.wait_for(state="attached", timeout=60_000)
    view.scroll_into_view_if_needed()
    return view


def test_waiting_experiment_says_why_until_it_starts(page: Page, client: Client) -> None:
    running = view_of(page, "first")
    expect(running.locator(".det-badge")).to_have_text("Running", timeout=60_000)
    waiting = view_of(page, "second")
    expect(waiting.locator(".det-badge")).to_have_text("Queued", timeout=30_000)
    expect(waiting.locator(".det-waiting:not([hidden])")).to_contain_text("first")
    expect(waiting.locator(".det-waiting code").first).to_contain_text("%det")
    section = waiting.locator(".det-cluster")
    expect(section.locator("summary")).to_contain_text("2 slots: 2 used · 1 waiting")
    expect(section.locator(".det-slot-who")).to_have_text(["first", "first"])
    expect(section.locator(".det-queue-row[data-own]")).to_contain_text("this experiment")

    first = next(view.id for view in client.experiments() if view.name == "first")
    client.command(first, "kill")
    expect(waiting.locator(".det-badge")).to_have_text("Running", timeout=30_000)
    expect(section.locator("summary")).to_have_text(
        "Slots and queue 2 slots: 2 used", timeout=30_000
    )
    expect(section).not_to_have_attribute("open", "")
