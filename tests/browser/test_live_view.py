"""The live view in a real JupyterLab in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from det_jupyter.client import Client, Experiment
from tests.browser.lab import (
    CHROMIUM,
    KERNELS_ALONE,
    chromium_page,
    jupyter_lab,
    open_notebook,
    run_all,
    save,
)
from tests.processes import DetHome, det_home, wait_until
from tests.trials import TRIAL_SOURCE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium"),
]

PAUSE = "        time.sleep(self.pause_s)\n"
PRINTING_SOURCE = TRIAL_SOURCE.replace(PAUSE, f"{PAUSE}        print('trains batch', batch_idx)\n")
SUBMIT = """%%det_experiment
name: small
entrypoint: SmallTrial
hyperparameters: {global_batch_size: 16, pause_s: 0.05}
searcher: {name: single, metric: error, max_length: {batches: 4000}}
min_validation_period: {batches: 20}
resources: {slots_per_trial: 2}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    path = tmp_path_factory.mktemp("home")
    with det_home(path, {"DET_JUPYTER_CPU_SLOTS": "2"}) as running:
        yield running


@pytest.fixture(scope="module")
def client(home: DetHome) -> Iterator[Client]:
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="module")
def page(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Return a page with a notebook whose last cell has submitted an experiment."""
    folder = tmp_path_factory.mktemp("notebooks")
    cells = ["%load_ext det_jupyter", PRINTING_SOURCE, SUBMIT]
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in cells],
        # Without it JupyterLab asks which kernel to use, and waits.
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(document, folder / "book.ipynb")
    with jupyter_lab(folder, arguments=KERNELS_ALONE) as address, chromium_page() as page:
        open_notebook(page, address, "book.ipynb")
        run_all(page)
        yield page
    for view in client.experiments():
        client.command(view.id, "kill")
    wait_until(lambda: all(v.state.is_terminal for v in client.experiments()), "all have ended")


def live_view(page: Page) -> Locator:
    """Return the live view, brought into sight: out of it, it draws nothing."""
    view = page.locator(".det-view").first
    view.wait_for(state="attached", timeout=60_000)
    view.scroll_into_view_if_needed()
    return view


def test_the_view_is_live_and_its_buttons_work(page: Page, client: Client) -> None:
    view = live_view(page)
    expect(view).to_contain_text("Running", timeout=60_000)
    expect(view.locator("canvas").first).to_be_visible(timeout=60_000)
    expect(view).to_contain_text("rank 1")
    check_tabs(view)
    check_logs(view)
    check_measured(view)
    experiment = Experiment(client, client.experiments()[-1].id)
    experiment.set_name("renamed while it runs")
    experiment.add_label("good")
    expect(view.locator(".det-name")).to_have_text("renamed while it runs", timeout=30_000)
    expect(view.locator(".det-label")).to_have_text("good", timeout=30_000)

    view.get_by_role("button", name="Pause").click()
    expect(view).to_contain_text("Paused", timeout=30_000)
    view.get_by_role("button", name="Activate").click()
    expect(view).to_contain_text("Running", timeout=30_000)

    save(page)
    page.reload()
    expect(live_view(page)).to_contain_text("Running", timeout=60_000)
    assert client.experiments()[-1].state == "ACTIVE"


def check_measured(view: Locator) -> None:
    """See where the ranks' time goes, and what their machine does."""
    view.get_by_role("tab", name="Timings").click()
    expect(view).to_contain_text("Time of a batch", timeout=30_000)
    expect(view.locator(".det-rank-bar")).to_have_count(2, timeout=30_000)
    expect(view.get_by_role("table")).to_contain_text("The rest")
    view.get_by_role("button", name="rank 1").click()
    expect(view.locator(".det-parts caption")).to_have_text("Parts of a batch, rank 1")
    view.get_by_role("tab", name="System").click()
    expect(view).to_contain_text("CPU, mean over cores", timeout=30_000)
    expect(view.locator(".det-missing")).to_contain_text("this agent has no GPU")
    expect(view.locator(".det-panel:not([hidden]) canvas").first).to_be_visible()
    view.get_by_role("tab", name="Overview").click()


def check_tabs(view: Locator) -> None:
    """Open tabs that are fetched from the kernel: their questions are answered, too."""
    view.get_by_role("tab", name="Overview").focus()
    view.page.keyboard.press("ArrowRight")
    metrics = view.locator("[role=tabpanel][data-tab=metrics]")
    expect(metrics.locator("canvas").first).to_be_visible(timeout=30_000)
    metrics.get_by_placeholder("Filter").fill("LOS")
    metrics.get_by_label("loss", exact=True).uncheck()
    expect(metrics.locator("figure")).to_have_count(1)
    view.get_by_role("tab", name="Config").click()
    expect(view.locator(".det-config")).to_contain_text("entrypoint: SmallTrial", timeout=30_000)
    expect(view.locator(".det-config")).to_contain_text("default")
    view.get_by_role("tab", name="Checkpoints").click()
    panel = view.locator("[role=tabpanel][data-tab=checkpoints]")
    expect(panel).to_contain_text("load_trial_from_checkpoint_path", timeout=60_000)


def check_logs(view: Locator) -> None:
    """Open what the ranks printed and narrow it down."""
    view.get_by_role("tab", name="Logs").click()
    log = view.get_by_role("log")
    expect(log).to_contain_text("×2 ranks trains batch", timeout=30_000)
    view.get_by_label("Rank", exact=True).select_option("1")
    expect(log).not_to_contain_text("rank 0")
    expect(log).to_contain_text("rank 1 trains batch")
    view.get_by_placeholder("Search: text").fill("/batch 1$/")

    expect(view.locator(".det-logs [role=status]")).to_have_text("1 line", timeout=30_000)


def test_kill_asks_first_and_what_has_ended_can_be_explored(page: Page, client: Client) -> None:
    view = live_view(page)
    view.get_by_role("button", name="Kill").click()
    assert client.experiments()[-1].state == "ACTIVE"
    view.get_by_role("button", name="Kill").last.click()
    expect(view.locator(".det-badge")).to_have_text("Canceled", timeout=30_000)
    view.get_by_role("tab", name="Overview").click()
    view.get_by_role("button", name="Table").first.click()
    expect(view.locator(".det-table").first).to_be_visible()
