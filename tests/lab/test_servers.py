"""Journeys through a Jupyter server that is not as usual, and through a list of 1,000."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from det_jupyter.client import Client
from hatch_build import SOURCES
from tests.benchmarks.lab_world import add_history
from tests.browser.lab import start_server
from tests.lab.pages import LabPage
from tests.lab.pseudo import find_plain, speaking, write_language
from tests.lab.servers import Lab
from tests.lab.tabs import SharedTab
from tests.lab.test_notebook import FUNCTION, LOAD, OF_FUNCTION
from tests.lab.trials import Trials
from tests.processes import DetHome, det_home, wait_until

MANY = 200
# What JupyterLab itself needs, and nothing more: no scripts or connections from elsewhere.
STRICT = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' ws://127.0.0.1:*; worker-src 'self' blob:; frame-ancestors 'none'"
)
HAS_TOOLS = (SOURCES / "node_modules" / "typescript").is_dir()
# What is in none of our strings: of users, of the training's code, of JupyterLab, of units.
NOT_OURS = {"translated", "vm", "error", "loss", "cpu", "CPU", "kB", "MB", "AM", "PM", "Section"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """A private det_jupyter in which 200 experiments have ended."""
    path = tmp_path_factory.mktemp("home")
    with ThreadPoolExecutor(1) as aside:  # Playwright runs a loop in this thread
        aside.submit(add_history, path / "data" / "det.sqlite3", MANY, 1).result()
    with det_home(path, {"DET_JUPYTER_CPU_SLOTS": "2"}) as running:
        yield running


@pytest.fixture(scope="module")
def client(home: DetHome) -> Iterator[Client]:
    """A client of its master."""
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="module")
def lab(
    client: Client, shared_tab: SharedTab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """A JupyterLab below a path, with a strict policy, which has one more language."""
    headers = f'{{"headers": {{"Content-Security-Policy": "{STRICT}"}}}}'
    arguments = [
        "--ServerApp.base_url=/user/ada%20l/",
        f"--ServerApp.tornado_settings={headers}",
    ]
    languages = tmp_path_factory.mktemp("languages")
    if HAS_TOOLS:
        write_language(languages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(languages), prepend=os.pathsep)
        folder = tmp_path_factory.mktemp("notebooks")
        lab = Lab(folder, arguments, disabled=(), start=start_server)  # as users have it
        lab.start()
    yield lab
    shared_tab.leave()
    lab.stop()


def test_hundreds_of_rows_are_scrolled_found_and_sorted(ui: LabPage) -> None:
    sidebar = ui.sidebar.open()
    grid = sidebar.node.get_by_role("grid", name="Finished experiments")
    expect(grid).to_have_attribute("aria-rowcount", str(MANY))
    assert sidebar.node.locator(".det-row").count() < 60
    for y in range(0, 46 * MANY, 46 * 41):
        grid.evaluate("(node, y) => { node.scrollTop = y; }", y)
        expect(sidebar.row(MANY - round(y / 46))).to_be_visible()
        assert sidebar.node.locator(".det-row").count() < 60
    grid.focus()
    ui.page.keyboard.press("End")
    expect(sidebar.row(1)).to_be_visible()
    ui.page.keyboard.press("Home")
    sidebar.node.get_by_label("Order", exact=True).select_option("metric")
    metrics = sidebar.ended.locator(".det-row-metric")

    def are_the_best_first() -> bool:
        values = [float(text) for text in metrics.all_inner_texts() if text]
        return len(values) > 5 and min(values) < 0.04

    wait_until(are_the_best_first, "the best are first")
    sidebar.node.get_by_label("Order", exact=True).select_option("newest")
    sidebar.search.fill(f"197 of {MANY}")  # the number of one, and the name of another
    expect(grid).to_have_attribute("aria-rowcount", "2")
    expect(sidebar.ended.filter(has_text="197")).to_have_count(2)

    def are_all_back() -> bool:
        sidebar.search.fill(
            ""
        )  # selects the text, then presses Delete: other news may come between
        return grid.get_attribute("aria-rowcount") == str(MANY)

    wait_until(are_all_back, "all are listed again")


def test_a_base_url_and_a_strict_policy_leave_everything_alive(
    ui: LabPage, lab: Lab, trials: Trials, client: Client
) -> None:
    lab.write_notebook("book.ipynb", LOAD, FUNCTION, f"%%det_experiment\n{OF_FUNCTION}")
    ui.run("docmanager:open", path="book.ipynb")
    ui.notebook.wait()
    ui.notebook.run_all()
    view = ui.notebook.see(2).locator(".det-view")
    expect(view).to_contain_text("a function")
    expect(view.locator("canvas >> visible=true").first).to_be_visible()
    experiment = client.experiments()[-1].id
    ui.sidebar.open().row(experiment).click()
    page = ui.experiment(experiment)
    page.tab("Config").click()
    expect(page.panel).to_contain_text("entrypoint: wait")
    page.view.get_by_role("button", name="Pause").click()
    expect(page.badge).to_have_text("Paused")


@pytest.mark.skipif(
    not HAS_TOOLS,
    reason="the front end's development tools, which find its texts, are not installed",
)
def test_in_another_language_nothing_of_ours_is_left_in_english(
    open_page: Callable[[], Page], lab: Lab, trials: Trials
) -> None:
    experiment = trials.train(name="translated")
    with speaking(lab.folder):
        ui = LabPage(open_page())
        ui.open(lab.url("language"))
        expect(ui.status).to_contain_text("⟦")
        ui.sidebar.open()
        expect(ui.sidebar.row(experiment.id)).to_be_visible()
        ui.run("det:open-experiment", experiment_id=experiment.id)
        page = ui.experiment(experiment.id)
        expect(page.view.locator(".det-tab").first).to_contain_text("⟦")
        for part in (
            ui.status,
            ui.sidebar.node.locator(".det-filters"),
            ui.sidebar.node.locator(".lm-AccordionPanel-title").first,
            page.view.locator(".det-tablist"),
        ):
            assert set(find_plain(part.inner_text())) - NOT_OURS == set(), part
