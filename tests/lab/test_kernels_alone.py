"""Journeys on a Jupyter server without our extension: what a notebook shows comes from its kernel.

One notebook, one kernel and one experiment go through all of it, in this order: the experiment
waits, trains, is steered and looked at; the page and the kernel go, and whatever became of them,
each view of the saved notebook has its picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import Kill
from det_jupyter.view.forms.notebook_output import EXPERIMENT_MIME
from tests.browser.lab import KERNELS_ALONE
from tests.lab.complaints import Complaints
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.lab.trials import SOURCE, Trials
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
SUBMIT = """%%det_experiment
name: {name}
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: 16, pause_s: {pause_s}}}
searcher: {{name: single, metric: error, max_length: {{batches: {batches}}}}}
min_validation_period: {{batches: 10}}
resources: {{slots_per_trial: {slots}}}
"""
CELLS = [
    "%load_ext det_jupyter",
    SOURCE,
    SUBMIT.format(name="ended", pause_s=0, batches=20, slots=1),
    SUBMIT.format(name="running", pause_s=0.2, batches=40_000, slots=2),
]
SEARCH = """
import sys
sys.path.insert(0, {root!r})
from IPython.display import display
from det_jupyter.contract.documents.patches import plain
from det_jupyter.front.notebook.handles.front_end import bundle
from det_jupyter.front.notebook.handles.widget import LiveWidget
from det_jupyter.view import build_view_state
from tests.unit.view.view_samples import search_experiment

chosen_id = None

def show(num_results):
    view, curves, checkpoints, now = search_experiment(200, num_results)
    return plain(build_view_state(view, curves, checkpoints, now, chosen_id=chosen_id))

def choose(trial_id):
    global chosen_id
    chosen_id = trial_id
    widget.state = show(150)

widget = LiveWidget(show(100), choose, lambda asked, send: None, lambda: None)
display(bundle(widget.state, widget), raw=True)
"""
ADVANCE = "widget.state = show(150)"
SESSION = "window.jupyterapp.shell.currentWidget.sessionContext"
TRUSTED = "window.jupyterapp.shell.currentWidget.model.cells.get(2).trusted"


@pytest.fixture(scope="module")
def lab(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose server does not have our extension."""
    with Lab(tmp_path_factory.mktemp("notebooks"), KERNELS_ALONE).running() as lab:
        yield lab


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A tab that is so high that both views are in it: out of sight, they draw nothing."""
    context = browser.new_context(
        viewport={"width": 1200, "height": 2200}, reduced_motion="reduce"
    )
    context.set_default_timeout(300_000)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def submitted(page: Page, lab: Lab, module_trials: Trials) -> LabPage:
    """The notebook after its cells ran: one experiment has ended, one waits for another's slots.

    That other is `first`, of nobody's notebook.
    """
    lab.write_notebook("book.ipynb", *CELLS)
    ui = open_notebook(page, lab, "book.ipynb")
    ui.notebook.choose(3)
    ui.begin("notebook:run-all-above")
    expect(page.locator(".det-badge")).to_have_text(["Completed"])
    module_trials.train(name="first", slots=2)
    ui.begin("notebook:run-cell")
    return ui


@pytest.fixture(scope="module")
def book(submitted: LabPage, lab: Lab, module_trials: Trials) -> Path:
    """The notebook, saved while its second experiment trains; the kernel lives."""
    for view in module_trials.client.experiments():
        if view.name == "first":
            module_trials.client.change(Kill(experiment_id=view.id))
    see_live(submitted.page, "Completed", "Running")
    path = lab.folder / "book.ipynb"
    save(submitted, path, "Completed", "Running")
    return path


@pytest.fixture
def experiment(client: Client, book: Path) -> Experiment:
    """The one that trains."""
    return Experiment(client, max(view.id for view in client.experiments()))


def open_notebook(page: Page, lab: Lab, name: str) -> LabPage:
    """Open a notebook, alone in its workspace, and wait until its kernel is ready."""
    ui = LabPage(page)
    ui.open(lab.url(Path(name).stem, name))
    ui.notebook.wait()
    return ui


def show_lab(page: Page, lab: Lab) -> LabPage:
    """Show JupyterLab without a document; load it only if the tab shows something else."""
    ui = LabPage(page)
    if ui.is_at(lab.root):
        ui.tidy()
    else:
        ui.open(lab.url("alone"))
    return ui


def see_live(page: Page, *badges: str) -> None:
    """Wait until both experiments are drawn live, in these states, with their curves."""
    expect(page.locator(".det-badge")).to_have_text(list(badges))
    for view in page.locator(".det-view").all():
        expect(view.locator("canvas").first).to_be_visible()
        expect(view.locator(".det-lost")).to_be_hidden()


def save(ui: LabPage, book: Path, *states: str) -> None:
    """Save the notebook, with pictures of the experiments in these states."""

    def is_saved() -> bool:
        ui.notebook.save()
        cells = nbformat.read(book, 4).cells
        pictures = [output.data["text/html"] for cell in cells for output in cell.outputs]
        return len(pictures) == len(states) and all(
            "<img" in picture and state in picture
            for picture, state in zip(pictures, states, strict=True)
        )

    wait_until(is_saved, "what happened is saved")


def see_pictures(page: Page, client: Client) -> None:
    """Check that each experiment has its kept picture: number, state and curves."""
    images = page.locator(".jp-Notebook:visible .jp-OutputArea-output img")
    expect(images.nth(3)).to_be_attached()
    assert all(image.evaluate("image => image.naturalWidth") > 0 for image in images.all())
    text = page.locator(".jp-Notebook:visible").inner_text()
    ended, _, running = (f"experiment {view.id}" for view in client.experiments())
    for word in (ended, running, "Completed", "Running"):
        assert word in text
    assert not re.search("model not found|Loading widget|Error displaying", text)
    assert page.locator(".jp-Notebook:visible .det-view").count() == 0


def run_first_cell(page: Page) -> None:
    """Run `%load_ext det_jupyter` once the kernel is there.

    Before, JupyterLab would start a second kernel for the cell, and shut one of both down.
    """
    LabPage(page).notebook.wait()
    page.locator(".jp-Notebook:visible .jp-CodeCell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")


def test_waiting_experiment_says_why_until_it_starts(submitted: LabPage, client: Client) -> None:
    waiting = submitted.page.locator(".det-view").nth(1)
    expect(waiting.locator(".det-badge")).to_have_text("Queued")
    expect(waiting.locator(".det-waiting:not([hidden])")).to_contain_text("first")
    expect(waiting.locator(".det-waiting code").first).to_contain_text("%det")
    section = waiting.locator(".det-cluster")
    expect(section.locator("summary")).to_contain_text("2 slots: 2 used · 1 waiting")
    expect(section.locator(".det-slot-who")).to_have_text(["first", "first"])
    expect(section.locator(".det-queue-row[data-own]")).to_contain_text("this experiment")

    first = next(view.id for view in client.experiments() if view.name == "first")
    client.change(Kill(experiment_id=first))
    expect(waiting.locator(".det-badge")).to_have_text("Running")
    expect(section.locator("summary")).to_have_text("Slots and queue 2 slots: 2 used")
    expect(section).not_to_have_attribute("open", "")


def test_notebook_has_no_widget_in_it(book: Path) -> None:
    outputs = [o for cell in nbformat.read(book, 4).cells for o in cell.outputs]
    assert [sorted(output.data) for output in outputs] == [
        [EXPERIMENT_MIME, "text/html", "text/plain"]
    ] * 2


def test_the_view_is_live_and_its_buttons_work(
    page: Page, book: Path, experiment: Experiment
) -> None:
    view = page.locator(".det-view").nth(1)
    expect(view).to_contain_text("Running")
    expect(view).to_contain_text("rank 1")
    check_tabs(view)
    check_logs(view)
    check_measured(view)
    experiment.set_name("renamed while it runs")
    experiment.add_label("good")
    expect(view.locator(".det-name")).to_have_text("renamed while it runs")
    expect(view.locator(".det-label")).to_have_text("good")

    view.get_by_role("button", name="Pause").click()
    expect(view).to_contain_text("Paused")
    view.get_by_role("button", name="Activate").click()
    expect(view).to_contain_text("Running")


def check_measured(view: Locator) -> None:
    """See where the ranks' time goes, and what their machine does."""
    view.get_by_role("tab", name="Timings").click()
    expect(view).to_contain_text("Time of a batch")
    expect(view.locator(".det-rank-bar")).to_have_count(2)
    expect(view.get_by_role("table")).to_contain_text("The rest")
    view.get_by_role("button", name="rank 1").click()
    expect(view.locator(".det-parts caption")).to_have_text("Parts of a batch, rank 1")
    view.get_by_role("tab", name="System").click()
    expect(view).to_contain_text("CPU, mean over cores")
    expect(view.locator(".det-missing")).to_contain_text("this agent has no GPU")
    expect(view.locator(".det-panel:not([hidden]) canvas").first).to_be_visible()
    view.get_by_role("tab", name="Overview").click()


def check_tabs(view: Locator) -> None:
    """Open tabs that are fetched from the kernel: their questions are answered, too."""
    view.get_by_role("tab", name="Overview").focus()
    view.page.keyboard.press("ArrowRight")
    metrics = view.locator("[role=tabpanel][data-tab=metrics]")
    expect(metrics.locator("canvas").first).to_be_visible()
    metrics.get_by_placeholder("Filter").fill("LOS")
    metrics.get_by_label("loss", exact=True).uncheck()
    expect(metrics.locator("figure")).to_have_count(1)
    view.get_by_role("tab", name="Config").click()
    expect(view.locator(".det-config")).to_contain_text("entrypoint: SmallTrial")
    expect(view.locator(".det-config")).to_contain_text("default")
    view.get_by_role("tab", name="Checkpoints").click()
    panel = view.locator("[role=tabpanel][data-tab=checkpoints]")
    expect(panel).to_contain_text("load_checkpoint")


def check_logs(view: Locator) -> None:
    """Open what the ranks printed and narrow it down."""
    view.get_by_role("tab", name="Logs").click()
    log = view.get_by_role("log")
    expect(log).to_contain_text("×2 ranks trains batch")
    view.get_by_label("Rank", exact=True).select_option("1")
    expect(log).not_to_contain_text("rank 0")
    expect(log).to_contain_text("rank 1 trains batch")
    view.get_by_placeholder("Search: text").fill("/batch 1$/")

    expect(view.locator(".det-logs [role=status]")).to_have_text("1 line")


def test_browser_that_was_closed_finds_live_views_and_saves_what_happened_since(
    page: Page, lab: Lab, book: Path, experiment: Experiment
) -> None:
    page.goto("about:blank")
    experiment.pause()
    wait_until(lambda: experiment.state == "PAUSED", "it is paused")
    ui = open_notebook(page, lab, book.name)
    see_live(page, "Completed", "Paused")
    save(ui, book, "Completed", "Paused")
    page.locator(".det-view").last.get_by_role("button", name="Activate").click()
    see_live(page, "Completed", "Running")


def test_restarted_kernel_is_said_to_be_gone_and_one_line_brings_the_views_back(
    page: Page, book: Path
) -> None:
    page.evaluate(f"() => {{ {SESSION}.session.kernel.restart(); }}")
    lost = page.locator(".det-lost:visible")
    expect(lost).to_have_count(2)
    expect(lost.last).to_contain_text("%load_ext det_jupyter")
    assert page.locator(".det-view").last.get_by_role("button", name="Pause").count() == 0
    expect(page.locator(".det-view").first.locator("canvas").first).to_be_visible()
    run_first_cell(page)
    see_live(page, "Completed", "Running")


def test_kernel_that_was_shut_down_leaves_pictures_which_one_line_makes_live_in_notebook_7(
    page: Page, lab: Lab, book: Path, client: Client
) -> None:
    save(LabPage(page), book, "Completed", "Running")
    page.evaluate(f"() => {SESSION}.shutdown()")
    expect(page.locator(".det-lost:visible")).to_have_count(2)
    page.goto("about:blank")
    page.goto(lab.notebook_url(book.name))
    see_pictures(page, client)
    assert page.evaluate(TRUSTED) is True
    run_first_cell(page)
    see_live(page, "Completed", "Running")


def test_kill_asks_first_and_what_has_ended_can_be_explored(
    page: Page, experiment: Experiment
) -> None:
    view = page.locator(".det-view").nth(1)
    view.get_by_role("button", name="Kill").click()
    assert experiment.state == "ACTIVE"
    view.get_by_role("button", name="Kill").last.click()
    expect(view.locator(".det-badge")).to_have_text("Canceled")
    view.get_by_role("tab", name="Overview").click()
    view.get_by_role("button", name="Table").first.click()
    expect(view.locator(".det-table").first).to_be_visible()


def test_copy_that_is_not_trusted_shows_the_pictures(
    page: Page, lab: Lab, book: Path, client: Client
) -> None:
    document = nbformat.read(book, 4)
    document.metadata["author"] = "a colleague"  # so the signature is not ours
    nbformat.write(document, book.with_name("copy.ipynb"))
    # Alone in its page: the kernel of a notebook beside it would draw its live views here too.
    open_notebook(page, lab, "copy.ipynb")
    see_pictures(page, client)
    assert page.evaluate(TRUSTED) is False


@pytest.fixture(scope="module")
def search(page: Page, lab: Lab) -> Locator:
    """The view of a search with 100 results, and then 50 more, in a notebook."""
    lab.write_notebook("search.ipynb", SEARCH.format(root=str(ROOT)), ADVANCE)
    ui = show_lab(page, lab)
    ui.run("docmanager:open", path="search.ipynb")
    ui.notebook.wait()
    ui.notebook.run_all()
    lab.wait_for_layout("search.ipynb")
    view = page.locator(".jp-Notebook:visible .det-view").first
    expect(view).to_contain_text("of 200 trials done")
    return view


def test_chosen_trial_comes_from_the_kernel_and_stays_chosen(page: Page, search: Locator) -> None:
    expect(search.locator(".det-trial-list")).to_contain_text("1–10 of 118 trials")
    assert search.locator("tr[data-trial]").count() == 10

    second = search.locator("tr[data-trial]").nth(1)
    second.click()
    trial_id = second.get_attribute("data-trial")
    expect(search.locator(".det-chosen")).to_contain_text(f"Trial {trial_id} ·")
    expect(search.locator(".det-chosen canvas").first).to_be_visible()

    ui = LabPage(page)
    ui.notebook.save()
    ui.reload()
    expect(search.locator(".det-chosen")).to_contain_text(f"Trial {trial_id} ·")
    expect(search.locator(".det-trial-list")).to_contain_text("of 118 trials")


def test_table_is_sorted_and_walked_by_keys(page: Page, search: Locator) -> None:
    expect(search.locator(".det-trial-list")).to_contain_text("1–10 of 118 trials")
    heading = search.get_by_role("button", name="Trial", exact=True)
    heading.focus()
    page.keyboard.press("Enter")
    rows = search.locator("tr[data-trial]")
    expect(rows.first).to_have_attribute("data-trial", "1")
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    expect(search.locator(".det-chosen")).to_contain_text("Trial 2 ·")


@pytest.mark.loses_connection  # there is nothing to connect to
def test_a_server_without_the_extension_is_told_how_to_get_it(
    page: Page, complaints: Complaints, lab: Lab
) -> None:
    complaints.watch(page)
    ui = show_lab(page, lab)
    expect(ui.status).to_have_attribute("data-det-link", "no-extension")
    banner = ui.sidebar.open().node.locator(".jp-DetLinkBanner")
    expect(banner.locator("code")).to_have_text("jupyter server extension enable det_jupyter")
    ui.run("det:open-experiment", experiment_id=1)
    expect(ui.experiment(1).node.locator(".jp-DetLinkBanner")).to_be_visible()
