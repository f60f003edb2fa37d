"""Journeys through pages of experiments in the main area, and through the Running panel."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host.tensorboards import running_boards
from det_jupyter.contract.messages import DeleteModel
from tests.lab.contrast import low_contrast
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.lab.trials import SOURCE, Trials
from tests.processes import wait_until
from tests.trials import Gate, submit

HOSTILE = "<img src=x onerror='window.__pwned=1'><script>window.__pwned=2</script>&amp;"
TABS = ("Overview", "Metrics", "Timings", "System", "Logs", "Config", "Checkpoints")
KEY_TEXTS = (
    ".det-badge", ".det-name", ".det-tab", ".det-quiet", ".det-row-name", ".det-row-word",
    ".det-row-metric", ".det-slot-row-who", ".det-slot-row-detail", ".det-button",
    ".det-section-count", ".jp-DetStatus-button", ".det-LinkBanner-button",
)  # fmt: skip


@pytest.fixture
def training(module_trials: Trials) -> Experiment:
    """An experiment on both slots that trains all the time, journey after journey."""
    client = module_trials.client
    for view in client.experiments():
        if view.name == "trains" and view.state == "ACTIVE":
            return Experiment(client, view.id)
    return module_trials.train(name="trains", slots=2, steps=45)


def test_all_tabs_of_a_page_have_what_they_are_for(ui: LabPage, training: Experiment) -> None:
    ui.run("det:open-experiment", experiment_id=training.id)
    page = ui.experiment(training.id)
    expect(page.badge).to_have_text("Running")
    for name in TABS:
        expect(page.tab(name)).to_be_visible()
    expect(page.panel.locator("canvas >> visible=true").first).to_be_visible()
    page.tab("Metrics").click()
    expect(page.panel.locator("figure canvas").first).to_be_visible()
    page.tab("Timings").click()
    expect(page.panel.locator(".det-rank-bar")).to_have_count(2)
    page.tab("System").click()
    expect(page.panel).to_contain_text("CPU, mean over cores")
    page.tab("Logs").click()
    expect(page.panel.get_by_role("log")).to_contain_text("trains batch")
    page.tab("Config").click()
    expect(page.panel).to_contain_text("entrypoint: SmallTrial")
    page.tab("Checkpoints").click()
    expect(page.panel).to_contain_text("checkpoint")


def test_tensorboard_opens_on_the_experiment_in_a_tab_of_the_browser(
    ui: LabPage, training: Experiment
) -> None:
    pytest.importorskip("tensorboard")
    ui.run("det:open-experiment", experiment_id=training.id, tab="metrics")
    page = ui.experiment(training.id)
    button = page.panel.get_by_role("button", name="TensorBoard", exact=True)
    with ui.page.context.expect_page() as opened:
        button.press("Enter")
    [board] = running_boards()
    try:
        opened.value.close()
        expect(page.panel.get_by_role("link", name=board.url)).to_be_visible()
        expect(button).to_be_focused()
        row = ui.sidebar.open().row(training.id)
        with ui.page.context.expect_page() as again:
            ui.menu(row, "Open in TensorBoard")
        again.value.close()
        expect(ui.toasts).to_contain_text(board.url)
        assert [each.id for each in running_boards()] == [board.id]
        assert board.experiments == [training.id]
        with urllib.request.urlopen(f"{board.url}data/runs") as answer:
            assert f"experiment-{training.id}/trial-" in answer.read().decode()
    finally:
        board.end()


def test_the_running_panel_has_trials_ranks_stacks_and_logs(
    ui: LabPage, training: Experiment
) -> None:
    ui.run("running:show-panel")
    ranks = ui.page.locator(".jp-DetRunning-rank")
    trial = ui.page.locator(".jp-DetRunning-trial")
    expect(trial).to_have_count(1)  # those of journeys before have left
    expect(trial).to_contain_text("trains")
    expect(ranks).to_have_count(2)
    ui.menu(ranks.first, "Show Stacks")
    stacks = ui.page.locator(".jp-DetStacks:visible")
    refresh = stacks.get_by_role("button", name="Refresh", exact=True)

    def is_asked_within_a_batch() -> bool:  # and not while the rank sends what it measured
        refresh.click()
        expect(refresh).to_be_enabled()
        return "in train_batch" in stacks.inner_text()

    wait_until(is_asked_within_a_batch, "a rank is in a batch")
    ranks.nth(1).click()
    page = ui.experiment(training.id)
    expect(page.tab("Logs")).to_have_attribute("aria-selected", "true")
    expect(page.panel.get_by_role("log")).to_contain_text("rank 1")
    ui.run("det:open-rank-console", trial_id=training.trials[0].id, rank=1)
    banner = ui.page.locator(".jp-CodeConsole:visible .jp-CodeConsole-banner")
    expect(banner).to_contain_text("batch_idx")
    banner.evaluate("node => node.classList.add('before-the-restart')")
    ui.begin("console:restart-kernel", activate=True)  # it keeps the variables: no question
    expect(ui.page.locator(".before-the-restart")).to_have_count(0)
    expect(banner).to_contain_text("batch_idx")
    expect(ui.dialog).to_have_count(0)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_key_texts_can_be_read_in_each_theme(
    ui: LabPage, training: Experiment, theme: str
) -> None:
    ui.run("apputils:change-theme", theme=theme)
    ui.sidebar.open()
    ui.run("det:open-experiment", experiment_id=training.id)
    expect(ui.experiment(training.id).badge).to_have_text("Running")
    expect(ui.sidebar.row(training.id)).to_be_visible()
    wait_until(lambda: low_contrast(ui.page, KEY_TEXTS) == [], "the new colours are there")
    assert len(low_contrast(ui.page, KEY_TEXTS, wanted=22)) > 10  # more than there can be
    ui.run("apputils:change-theme", theme="JupyterLab Light")


def test_forced_colours_leave_states_and_buttons_to_be_seen(
    ui: LabPage, training: Experiment
) -> None:
    ui.page.emulate_media(forced_colors="active")
    ui.sidebar.open()
    ui.run("det:open-experiment", experiment_id=training.id)
    page = ui.experiment(training.id)
    expect(page.badge).to_have_text("Running")
    assert border(page.view.get_by_role("button", name="Pause")) != "0px"
    row = ui.sidebar.row(training.id)
    expect(row.locator("svg").first).to_be_visible()
    bar = row.get_by_role("progressbar")
    assert border(bar) != "0px"


def border(element: Locator) -> str:
    return str(element.evaluate("node => getComputedStyle(node).borderTopWidth"))


def test_a_page_is_walked_by_keys_alone(ui: LabPage, training: Experiment) -> None:
    ui.run("det:open-experiment", experiment_id=training.id, tab="overview")
    page = ui.experiment(training.id)
    page.tab("Overview").focus()
    for name in TABS[1:]:
        ui.page.keyboard.press("ArrowRight")
        expect(page.tab(name)).to_be_focused()
        expect(page.tab(name)).to_have_attribute("aria-selected", "true")
    page.view.get_by_role("button", name="Kill").focus()
    ui.page.keyboard.press("Enter")
    expect(page.view.get_by_role("button", name="Keep it")).to_be_focused()
    ui.page.keyboard.press("Escape")
    expect(page.view.get_by_role("button", name="Kill")).to_be_focused()
    assert training.view.state == "ACTIVE"


def test_buttons_of_a_page_pause_activate_and_kill(ui: LabPage, trials: Trials) -> None:
    experiment = trials.train(name="steered", slots=2)
    ui.run("det:open-experiment", experiment_id=experiment.id)
    page = ui.experiment(experiment.id)
    page.view.get_by_role("button", name="Pause").click()
    expect(page.badge).to_have_text("Paused")
    page.view.get_by_role("button", name="Activate").click()
    expect(page.badge).to_have_text("Running")
    page.view.get_by_role("button", name="Kill").click()
    page.view.get_by_role("group").get_by_role("button", name="Kill").click()
    expect(page.badge).to_have_text("Canceled")
    tab = ui.page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text="steered")
    expect(tab).to_contain_text("Canceled")


def test_a_search_grows_and_a_reload_brings_back_page_trial_tab_zoom_and_metrics(
    ui: LabPage, lab: Lab, trials: Trials, tmp_path: Path
) -> None:
    searcher = {
        "name": "random",
        "metric": "error",
        "max_trials": 3,
        "max_length": {"batches": 45},
    }
    lr = {"type": "log", "base": 10, "minval": -4, "maxval": -1}
    hparams = {"global_batch_size": 16, "pause_s": 0.0, "lr": lr}
    gate = Gate(tmp_path, 5)
    search = trials.gated("searches", gate, searcher=searcher, hyperparameters=hparams)
    ui.run("det:open-experiment", experiment_id=search.id)
    page = ui.experiment(search.id)
    rows = page.view.locator("tr[data-trial]")
    expect(rows).to_have_count(3)
    gate.open()
    expect(page.badge).to_have_text("Completed")
    rows.nth(2).click()
    chosen = rows.nth(2).get_attribute("data-trial")
    expect(page.view.locator(".det-chosen")).to_contain_text(f"Trial {chosen} ·")
    page.tab("Metrics").click()
    page.panel.get_by_label("loss", exact=True).uncheck()
    expect(page.panel.locator("figure")).to_have_count(1)
    plot = page.panel.locator(".u-over").first
    reset = page.panel.get_by_role("button", name="Whole run")
    wait_until(lambda: zoom(ui.page, plot, reset), "the plot is zoomed")
    lab.wait_for_layout(f"det-experiment-page:{search.id}")
    lab.wait_for_state(
        "pages",
        lambda looks: any(
            str(look["chosen"]) == chosen
            and look["settings"].get("metrics_zoom")
            and look["settings"].get("metrics") == ["error"]
            for look in looks.values()
        ),
    )
    ui.reload()
    expect(page.tab("Metrics")).to_have_attribute("aria-selected", "true")
    expect(page.panel.get_by_label("error", exact=True)).to_be_checked()
    expect(page.panel.get_by_label("loss", exact=True)).not_to_be_checked()
    expect(reset).to_be_visible()
    page.tab("Overview").click()
    expect(page.view.locator(".det-chosen")).to_contain_text(f"Trial {chosen} ·")


def zoom(tab: Page, plot: Locator, reset: Locator) -> bool:
    """Drag over a plot; return whether that has zoomed it, as it may just be drawn anew."""
    if box := plot.bounding_box():
        tab.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
        tab.mouse.down()
        tab.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 20, steps=4)
        tab.mouse.up()
    return reset.is_visible()


def test_an_experiment_that_is_deleted_while_open_says_so(ui: LabPage, trials: Trials) -> None:
    experiment = trials.ended(name="deleted")
    ui.run("det:open-experiment", experiment_id=experiment.id)
    page = ui.experiment(experiment.id)
    expect(page.badge).to_have_text("Completed")
    row = ui.sidebar.open().row(experiment.id)
    ui.menu(row, "Delete")
    ui.dialog.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    expect(page.node).to_contain_text("deleted")
    ui.run("det:open-experiment", experiment_id=999_999)  # one that never was
    expect(ui.experiment(999_999).node).to_contain_text("999999")
    expect(ui.experiment(999_999).node).not_to_contain_text("Loading")


def test_a_checkpoint_becomes_a_version_of_a_model_with_a_page(
    ui: LabPage, trials: Trials
) -> None:
    experiment = trials.ended(name="trained")
    ui.run("det:open-experiment", experiment_id=experiment.id, tab="checkpoints")
    panel = ui.experiment(experiment.id).panel
    panel.get_by_role("button", name="Register…").first.click()
    panel.get_by_label("Name of the model").fill("digits")
    panel.get_by_role("button", name="Register", exact=True).click()
    expect(panel).to_contain_text("Registered as version 1 of model digits.")
    ui.sidebar.open().node.get_by_role("button", name="digits").click()
    page = ui.page.locator(".jp-DetModelPage:visible")
    expect(page).to_contain_text("det_jupyter.model('digits').version(1).checkpoint.load()")
    page.get_by_role("button", name="Alias…").click()
    ui.dialog.get_by_role("textbox").fill("production")
    ui.dialog.get_by_role("button", name="Give").click()
    expect(page.locator(".det-alias")).to_contain_text("production")
    expect(ui.sidebar.node).to_contain_text("production: 1")
    assert ui.misplaced() == []
    page.get_by_role("button", name="trained", exact=True).click()
    expect(panel).to_contain_text("digits 1")
    trials.client.change(DeleteModel(model="digits"))
    expect(ui.sidebar.node).not_to_contain_text("production: 1")


def test_markup_and_scripts_in_texts_are_only_shown(
    ui: LabPage, trials: Trials, client: Client
) -> None:
    source = SOURCE.replace('{"loss": loss}', f'{{"loss": loss, {HOSTILE!r}: loss}}').replace(
        "'trains batch'", repr(f"{HOSTILE} \x1b[31mred\x1b[0m")
    )
    config = {
        "name": HOSTILE, "description": HOSTILE, "entrypoint": "SmallTrial",
        "labels": [HOSTILE[:60]],
        "hyperparameters": {"global_batch_size": 16, "pause_s": 0.2},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 40_000}},
        "resources": {"slots_per_trial": 1},
    }  # fmt: skip
    experiment = submit(client, config, source)
    trials.failing(HOSTILE)
    expect(ui.sidebar.open().row(experiment.id)).to_contain_text("<img src=x")
    expect(ui.sidebar.slots.filter(has_text="<img src=x")).to_have_count(1)
    expect(ui.toasts.filter(has_text="<img src=x").first).to_be_visible()
    ui.run("det:open-experiment", experiment_id=experiment.id)
    page = ui.experiment(experiment.id)
    expect(page.view.locator(".det-name")).to_contain_text("<script>")
    page.tab("Metrics").click()
    expect(page.panel).to_contain_text("<img src=x")
    page.tab("Logs").click()
    expect(page.panel.get_by_role("log")).to_contain_text("<script>")
    ui.run("running:show-panel")
    # The trial that has ended may still be listed, too.
    running = ui.page.locator(".jp-DetRunning-trial").filter(has_text="<img")
    expect(running.first).to_be_visible()
    ui.run("det:compare-experiments", experiment_ids=[experiment.id, experiment.id - 1])
    wait_until(lambda: ui.page.evaluate("window.__pwned") is None, "nothing ran")
    ui.begin("det:label-experiment", experiment_id=experiment.id)
    expect(ui.dialog.locator("input")).to_have_value(HOSTILE[:60])
    ui.page.keyboard.press("Escape")
