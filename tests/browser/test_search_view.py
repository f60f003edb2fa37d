"""The view of a search in a real JupyterLab: chosen trials make the way to the kernel and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import (
    CHROMIUM,
    KERNELS_ALONE,
    chromium_page,
    jupyter_lab,
    open_notebook,
    run_all,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium"),
]

ROOT = Path(__file__).parents[2]

SHOW = """
import sys
sys.path.insert(0, {root!r})
from IPython.display import display
from det_jupyter.notebook.handles.show import bundle, live_widget
from det_jupyter.view import build_view_state
from tests.unit.view.view_samples import search_experiment

chosen_id = None

def show(num_results):
    view, curves, checkpoints, now = search_experiment(200, num_results)
    return build_view_state(view, curves, checkpoints, now, chosen_id=chosen_id)

def choose(trial_id):
    global chosen_id
    chosen_id = trial_id
    widget.state = show(150)

widget = live_widget(show(100), lambda verb: None, choose)
display(bundle(widget.state, widget), raw=True)
"""
ADVANCE = "widget.state = show(150)"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Return a page with a notebook that shows a search with 100 results, and then 50 more."""
    cells = [SHOW.format(root=str(ROOT)), ADVANCE]
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(document, tmp_path / "book.ipynb")
    with jupyter_lab(tmp_path, arguments=KERNELS_ALONE) as address, chromium_page() as page:
        open_notebook(page, address, "book.ipynb")
        run_all(page)
        yield page


def search_view(page: Page) -> Locator:
    view = page.locator(".det-view").first
    view.wait_for(state="attached", timeout=60_000)
    view.scroll_into_view_if_needed()
    return view


def test_chosen_trial_comes_from_the_kernel_and_stays_chosen(page: Page) -> None:
    view = search_view(page)
    expect(view).to_contain_text("of 200 trials done", timeout=60_000)
    expect(view.locator(".det-trial-list")).to_contain_text("1–10 of 118 trials", timeout=60_000)
    assert view.locator("tr[data-trial]").count() == 10

    second = view.locator("tr[data-trial]").nth(1)
    second.click()
    trial_id = second.get_attribute("data-trial")
    expect(view.locator(".det-chosen")).to_contain_text(f"Trial {trial_id} ·", timeout=30_000)
    expect(view.locator(".det-chosen canvas").first).to_be_visible(timeout=30_000)

    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    again = search_view(page)
    expect(again.locator(".det-chosen")).to_contain_text(f"Trial {trial_id} ·", timeout=60_000)
    expect(again.locator(".det-trial-list")).to_contain_text("of 118 trials")


def test_table_is_sorted_and_walked_by_keys(page: Page) -> None:
    view = search_view(page)
    expect(view.locator(".det-trial-list")).to_contain_text("1–10 of 118 trials", timeout=60_000)
    heading = view.get_by_role("button", name="Trial", exact=True)
    heading.focus()
    page.keyboard.press("Enter")
    rows = view.locator("tr[data-trial]")
    expect(rows.first).to_have_attribute("data-trial", "1")
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    expect(view.locator(".det-chosen")).to_contain_text("Trial 2 ·", timeout=30_000)
