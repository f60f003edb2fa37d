"""Journeys through notebooks: outputs that the server feeds, and cells that become experiments."""

from __future__ import annotations

from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Page, expect

from det_jupyter.client import Client
from det_jupyter.contract.messages import Activate
from det_jupyter.view.forms.notebook_output import EXPERIMENT_MIME
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.lab.trials import SOURCE, Trials
from tests.processes import wait_until

CONFIG = """name: {name}
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: 16, pause_s: {pause_s}}}
searcher: {{name: single, metric: error, max_length: {{batches: {batches}}}}}
min_validation_period: {{batches: 10}}
resources: {{slots_per_trial: 1}}
"""
HAS_PICTURES = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .filter(cell => cell.outputs?.length)
  .every(cell => cell.outputs.get(0)?.data['text/html']?.includes('<img'))"""
LOAD = "%load_ext det_jupyter"


PLAIN = """def finetune(core_context, hparams):
    if hparams["trains"]:
        from lightning import Trainer

        trainer = Trainer(max_epochs=1)
        trainer.fit(hparams["model"])
"""
# A kernel loads no torch for it.
FUNCTION = """import time

def wait(core_context):
    step = 0
    while not core_context.preempt.should_preempt():
        step += 1
        core_context.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.2)
"""
OF_FUNCTION = """name: a function
entrypoint: wait
searcher: {name: single, metric: loss, max_length: {batches: 1}}
"""
SUBMIT_PLAIN = """%%det_experiment
entrypoint: finetune
hyperparameters: {trains: false}
searcher: {name: single, metric: loss, max_length: {batches: 1}}
"""


def submitting(name: str, *, pause_s: float = 0.2, batches: int = 40_000) -> str:
    return "%%det_experiment\n" + CONFIG.format(name=name, pause_s=pause_s, batches=batches)


@pytest.fixture(scope="module")
def book(lab: Lab, client: Client, module_trials: Trials) -> str:
    """A notebook with two experiments: one has ended, one goes on."""
    lab.write_notebook(
        "book.ipynb", LOAD, SOURCE, submitting("short", pause_s=0, batches=20), submitting("long")
    )
    return "book.ipynb"


@pytest.fixture
def shown(ui: LabPage, lab: Lab, book: str) -> LabPage:
    """JupyterLab with that notebook in front, also after a reload."""
    ui.run("docmanager:open", path=book)
    expect(ui.notebook.cells).to_have_count(4)
    lab.wait_for_layout(book)
    return ui


def see_live(ui: LabPage) -> None:
    """Wait until both experiments are drawn live, from the server."""
    for index, word in ((2, "Completed"), (3, "Running")):
        view = ui.notebook.see(index).locator(".det-view")
        expect(view.locator(".det-badge").first).to_have_text(word)
        expect(view.locator("canvas >> visible=true").first).to_be_visible()
        expect(view.locator(".det-lost")).to_be_hidden()
    header = view.locator(".det-header")
    expect(header).not_to_have_text(header.inner_text())  # the time goes on


def test_a_cell_submits_and_its_output_and_the_sidebar_are_live(
    shown: LabPage, client: Client
) -> None:
    shown.sidebar.open()
    shown.notebook.wait()
    shown.notebook.run_all()
    expect(shown.notebook.see(3).locator(".det-view")).to_be_visible()
    see_live(shown)
    ids = [view.id for view in client.experiments()]
    expect(shown.sidebar.row(ids[-1])).to_contain_text("long")
    expect(shown.sidebar.row(ids[-1])).to_contain_text("Running")
    shown.notebook.see(3).get_by_role("button", name="Pause").click()
    expect(shown.sidebar.row(ids[-1])).to_contain_text("Paused")
    shown.notebook.see(3).get_by_role("button", name="Activate").click()
    expect(shown.sidebar.row(ids[-1])).to_contain_text("Running")
    shown.page.wait_for_function(HAS_PICTURES)
    shown.notebook.save()


def test_what_is_saved_is_a_card_a_picture_and_the_place(lab: Lab, book: str) -> None:
    document = nbformat.read(lab.folder / book, 4)
    outputs = [output for cell in document.cells for output in cell.outputs]
    assert [sorted(output.data) for output in outputs] == [
        [EXPERIMENT_MIME, "text/html", "text/plain"]
    ] * 2
    for output, name in zip(outputs, ("short", "long"), strict=True):
        assert output.data[EXPERIMENT_MIME]["name"] == name
        assert "<img" in output.data["text/html"]
        assert name in output.data["text/plain"]


def test_views_go_on_when_the_kernel_is_restarted(shown: LabPage) -> None:
    shown.notebook.wait()
    see_live(shown)
    shown.page.evaluate(
        "async () => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    see_live(shown)
    shown.notebook.see(3).get_by_role("tab", name="Logs").click()
    expect(shown.notebook.see(3).get_by_role("log")).to_contain_text("trains batch")
    shown.notebook.see(3).get_by_role("tab", name="Overview").click()


def test_outputs_are_pictures_when_the_setting_says_so_and_live_without_a_kernel(
    shown: LabPage,
) -> None:
    shown.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    shown.set(liveOutputs=False)
    shown.reload()
    picture = shown.notebook.see(3).locator(".jp-OutputArea-output img").first
    expect(picture).to_be_visible()
    expect(shown.notebook.views).to_have_count(0)
    shown.set(liveOutputs=True)
    see_live(shown)


def test_notebook_7_has_a_tree_and_draws_live_outputs_from_the_server(
    open_page: Callable[[], Page], lab: Lab, book: str, client: Client
) -> None:
    page = open_page()
    page.goto(f"{lab.root}tree?token={lab.token}")
    expect(page.locator(".jp-DirListing-content")).to_be_visible()
    page.goto(lab.notebook_url(book))
    notebook = LabPage(page)
    expect(page.locator(".jp-Cell")).to_have_count(4)
    see_live(notebook)
    running = client.experiments()[-1].id
    notebook.notebook.see(3).get_by_role("button", name="Pause").click()
    wait_until(lambda: client.experiment(running).state == "PAUSED", "it is paused")
    client.change(Activate(experiment_id=running))
    notebook.begin("det:open-experiment")
    notebook.dialog.get_by_role("searchbox").fill(f"#{running}")
    expect(notebook.dialog.get_by_role("row")).to_have_count(1)
    assert notebook.misplaced() == []
    page.keyboard.press("Enter")
    expect(notebook.experiment(running).view).to_be_visible()
    expect(notebook.sidebar.open().row(running)).to_be_visible()


def test_the_toolbar_makes_a_cell_an_experiment_and_runs_it(
    ui: LabPage, lab: Lab, trials: Trials
) -> None:
    lab.write_notebook("button.ipynb", FUNCTION, OF_FUNCTION)
    ui.run("docmanager:open", path="button.ipynb")
    ui.notebook.wait()
    ui.run("notebook:run-cell")
    ui.notebook.choose(1)
    ui.notebook.node.locator(
        "[data-jp-item-name=det-run-cell] jp-button, .jp-ToolbarButton "
        "[data-command='det:run-cell-as-experiment']"
    ).first.click()
    expect(ui.notebook.cells.last).to_contain_text("%%det_experiment")
    expect(ui.notebook.views).to_contain_text("a function")
    expect(ui.notebook.views.locator(".det-badge").first).to_have_text("Running")


def test_the_toolbar_puts_an_experiment_below_code_and_fills_an_empty_cell(
    ui: LabPage, lab: Lab
) -> None:
    lab.write_notebook("below.ipynb", SOURCE)
    ui.run("docmanager:open", path="below.ipynb")
    ui.notebook.wait()
    ui.run("det:run-cell-as-experiment")
    expect(ui.notebook.cells).to_have_count(2)
    expect(ui.notebook.cells.last).to_contain_text("entrypoint: SmallTrial")
    ui.run("notebook:insert-cell-below")
    ui.run("det:run-cell-as-experiment")
    expect(ui.notebook.cells.last).to_contain_text("%%det_experiment")


def test_a_button_adds_the_callback_that_a_trainer_lacks(ui: LabPage, lab: Lab) -> None:
    lab.write_notebook("plain.ipynb", LOAD, PLAIN, SUBMIT_PLAIN)
    ui.run("docmanager:open", path="plain.ipynb")
    ui.notebook.wait()
    ui.notebook.run_all()
    view = ui.notebook.see(2).locator(".det-view")
    expect(view).to_contain_text("`finetune` calls lightning.Trainer without DetCallback")
    view.get_by_role("button", name="Add DetCallback").click()
    expect(view).to_contain_text("Added to its cell: run the cell, and submit again.")
    expect(ui.notebook.see(1)).to_contain_text("callbacks=[det]")
    ui.notebook.run_all()
    view = ui.notebook.see(2).locator(".det-view")
    expect(view).not_to_contain_text("without DetCallback")
    expect(view.locator(".det-badge").first).to_have_text("Completed")


def test_a_template_becomes_a_cell(ui: LabPage, lab: Lab, client: Client) -> None:
    client.set_template("team", {"resources": {"slots_per_trial": 2}})
    lab.write_notebook("template.ipynb", "")
    ui.run("docmanager:open", path="template.ipynb")
    ui.notebook.wait()
    sidebar = ui.sidebar.open()
    sidebar.node.get_by_role("heading", name="Templates").click()
    template = sidebar.node.locator(".det-template", has_text="team")
    template.locator("summary").click()
    expect(template).to_contain_text("slots_per_trial: 2")
    template.get_by_role("button", name="Use in a new cell").click()
    expect(ui.notebook.node).to_contain_text("%%det_experiment --template team")
    template.get_by_role("button", name="Delete").click()
    ui.dialog.get_by_role("button", name="Delete").click()
    expect(template).to_have_count(0)
