"""Journeys through the sidebar and what stands around it: real experiments on two CPU slots."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import RankFailed
from tests.lab.pages import EDGES, LabPage
from tests.lab.servers import Lab
from tests.lab.trials import Trials
from tests.processes import wait_until
from tests.trials import Gate


@pytest.fixture(scope="module")
def runs(module_trials: Trials) -> Experiment:
    """Three experiments that have ended, with names, labels and results of their own."""
    made = [
        module_trials.run(name=name, labels=labels, pause_s=0.0, batches=20)
        for name, labels in [("apple", ["good"]), ("banana", ["good", "wide"]), ("cherry", [])]
    ]
    wait_until(lambda: all(one.view.state.is_terminal for one in made), "all have ended")
    return made[-1]


def test_an_experiment_is_seen_from_its_start_to_its_end(
    ui: LabPage, trials: Trials, tmp_path: Path
) -> None:
    sidebar = ui.sidebar.open()
    gates = [Gate(tmp_path, batch) for batch in (30, 45)]
    experiment = trials.gated("seen", *gates)
    row = sidebar.row(experiment.id)
    expect(row).to_contain_text("seen")
    expect(row).to_contain_text("Running")
    expect(row).to_contain_text("error")
    bar = row.get_by_role("progressbar")
    assert ui.misplaced() == []
    before = int(bar.get_attribute("aria-valuenow") or 0)
    gates[0].open()
    wait_until(lambda: int(bar.get_attribute("aria-valuenow") or 0) > before, "it goes on")
    gates[1].open()
    expect(row.and_(sidebar.ended)).to_contain_text("Completed")
    expect(row.get_by_role("progressbar")).to_have_count(0)


def test_buttons_of_a_row_pause_activate_and_kill_after_a_question(
    ui: LabPage, trials: Trials
) -> None:
    experiment = trials.train(name="steered")
    row = ui.sidebar.open().row(experiment.id)
    row.hover()
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    row.get_by_role("button", name="Activate").click()
    expect(row).to_contain_text("Running")
    row.get_by_role("button", name="Kill").click()
    ui.dialog.get_by_role("button", name="Keep It").click()
    assert experiment.view.state == "ACTIVE"
    row.get_by_role("button", name="Kill").click()
    ui.dialog.get_by_role("button", name="Kill").click()
    expect(row).to_contain_text("Canceled")


def test_a_pause_says_what_it_waits_for_and_can_be_ended_now(ui: LabPage, trials: Trials) -> None:
    experiment = trials.run(name="stuck", pause_s=3600)
    row = ui.sidebar.open().row(experiment.id)
    expect(row).to_contain_text("Running")
    row.hover()
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Pausing")
    expect(row).to_contain_text("not come to the end of batch")
    assert experiment.state == "PAUSING"
    row.get_by_role("button", name="End now").click()
    expect(row).to_contain_text("Paused")
    assert experiment.state == "PAUSED"


def test_slots_say_who_is_on_them(
    ui: LabPage, trials: Trials, devices: Callable[[dict[str, object]], None]
) -> None:
    slots = ui.sidebar.open().slots
    expect(slots).to_have_count(2)
    experiment = trials.train(name="tenant")
    held = slots.filter(has_text="tenant")
    expect(held).to_have_count(1)
    expect(held).to_contain_text("rank 0")
    other = slots.filter(has_not_text="tenant")
    slot = other.locator(".det-slot-row-id").inner_text()
    stranger = {"pid": 4711, "command": "python train.py", "user": "ada", "memory_bytes": 5e9}
    devices({slot: [stranger | {"memory_bytes": 5_000_000_000}]})
    expect(other).to_contain_text("python train.py")
    expect(ui.status).to_contain_text("1/2")
    held.click()
    expect(ui.experiment(experiment.id).view).to_be_visible()


def test_a_waiting_experiment_says_why_and_a_button_helps(ui: LabPage, trials: Trials) -> None:
    first = trials.train(name="first", slots=2)
    waiting = trials.run(name="second", slots=2)
    row = ui.sidebar.open().row(waiting.id)
    expect(row).to_contain_text("Queued")
    expect(row.locator(".det-row-wait")).to_contain_text("first")
    expect(ui.status).to_contain_text("1 running · 1 waiting · 2/2")
    expect(ui.sidebar.node.get_by_title("1 running · 1 waiting")).to_have_text("2")
    assert ui.sidebar.cut_titles() == []
    remedy = row.locator(".det-row-remedy button").first
    expect(remedy).to_be_visible()
    remedy.click()
    expect(ui.dialog.or_(row.get_by_text("Running")).first).to_be_visible()
    if ui.dialog.is_visible():
        ui.dialog.locator(".jp-mod-accept").click()
    expect(row).to_contain_text("Running")
    expect(ui.sidebar.row(first.id)).not_to_contain_text("Running")


def test_finished_experiments_are_searched_filtered_and_sorted(
    ui: LabPage, lab: Lab, runs: Experiment
) -> None:
    sidebar = ui.sidebar.open()
    expect(sidebar.ended.filter(has_text="apple")).to_be_visible()
    sidebar.node.get_by_label("Order", exact=True).select_option("name")
    wait_until(lambda: sidebar.names()[:3] == ["apple", "banana", "cherry"], "sorted by name")
    sidebar.node.get_by_label("Order", exact=True).select_option("newest")
    wait_until(lambda: sidebar.names()[0] != "apple", "sorted by age")
    # What has nothing to show is only its header, and what is finished gets the rest.
    wait_until(lambda: sidebar.height("active") == 0, "the section without rows is folded")
    assert sidebar.height("ended") > sidebar.height("slots")  # agents of other tests may be there
    sidebar.search.fill("banan")
    expect(sidebar.ended).to_have_count(1)
    sidebar.search.fill("no such thing")
    expect(sidebar.ended).to_have_count(0)
    sidebar.node.get_by_role("button", name="Clear the filter").click()
    sidebar.ended.filter(has_text="banana").locator(".det-chip", has_text="good").click()
    expect(sidebar.ended).to_have_count(2)
    lab.wait_for_state("sidebar", lambda kept: kept["labels"] == ["good"])
    ui.run("det:compare-experiments", experiment_ids=[runs.id, runs.id - 1])
    lab.wait_for_layout("det-comparison")
    ui.reload()  # what the list was narrowed to is kept, and what was open
    expect(sidebar.ended).to_have_count(2)
    expect(ui.comparison).to_contain_text("banana")
    sidebar.node.get_by_role("button", name="Also without the label good").click()
    sidebar.node.get_by_label("Status", exact=True).select_option("error")
    expect(sidebar.ended.filter(has_text="apple")).to_have_count(0)
    sidebar.node.get_by_label("Status", exact=True).select_option("")


def test_labels_are_edited_and_experiments_archived(ui: LabPage, runs: Experiment) -> None:
    sidebar = ui.sidebar.open()
    row = sidebar.row(runs.id)
    row.hover()
    row.get_by_role("button", name="Change labels").click()
    ui.dialog.locator("input").fill("best, <b>bold</b>")
    ui.dialog.get_by_role("button", name="Save").click()
    expect(row.locator(".det-chip")).to_have_text(["best", "<b>bold</b>"])
    ui.menu(row, "Rename")
    ui.dialog.locator("input").fill("cherry pie")
    ui.dialog.get_by_role("button", name="Rename").click()
    expect(row).to_contain_text("cherry pie")
    ui.menu(row, "Rename")
    expect(ui.dialog.locator("input")).to_be_focused()
    ui.page.keyboard.press("Escape")
    expect(sidebar.node.get_by_role("grid", name="Finished experiments")).to_be_focused()
    row.hover()
    row.get_by_role("button", name="Archive").click()
    expect(row).to_have_count(0)
    sidebar.node.get_by_role("button", name="Show archived").click()
    expect(row).to_contain_text("archived")
    ui.menu(row, "Unarchive")
    expect(row).not_to_contain_text("archived")
    sidebar.node.get_by_role("button", name="Show archived").click()
    expect(row).to_be_visible()


def test_selected_experiments_are_compared(ui: LabPage, runs: Experiment) -> None:
    sidebar = ui.sidebar.open()
    for name in ("apple", "cherry"):
        sidebar.ended.filter(has_text=name).first.click(modifiers=["Control"])
    bar = sidebar.node.get_by_role("toolbar", name="Selected experiments")
    buttons = bar.get_by_role("button").all()
    assert len(buttons) == 5
    right, top = sidebar.node.evaluate(EDGES)["right"], sidebar.ended.first.evaluate(EDGES)["top"]
    for edges in [button.evaluate(EDGES) for button in buttons]:
        assert edges["right"] <= right  # seen whole
        assert edges["bottom"] <= top  # and covers no row
    bar.get_by_role("button", name="Edit labels").click()
    ui.dialog.locator("input").fill("both")
    ui.dialog.get_by_role("button", name="Save").click()
    expect(sidebar.ended.filter(has=ui.page.locator(".det-chip", has_text="both"))).to_have_count(
        2
    )
    bar.get_by_role("button", name="Compare").click()
    expect(ui.comparison).to_contain_text("apple")
    expect(ui.comparison).to_contain_text("cherry")
    expect(ui.comparison.locator("canvas >> visible=true").first).to_be_visible()
    bar.get_by_role("button", name="Clear the selection").click()
    expect(bar).to_be_hidden()


def test_everything_leads_to_the_sidebar_and_pages(ui: LabPage, runs: Experiment) -> None:
    ui.status.click()
    expect(ui.sidebar.node).to_be_visible()
    ui.run("application:toggle-left-area")
    expect(ui.sidebar.node).not_to_be_visible()
    ui.page.locator(".jp-LauncherCard", has_text="Experiments").click()
    expect(ui.sidebar.node).to_be_visible()
    ui.run("application:toggle-left-area")
    ui.palette("Show Slots and Experiments")
    expect(ui.sidebar.node).to_be_visible()
    ui.sidebar.row(runs.id).click()
    expect(ui.experiment(runs.id).badge).to_have_text("Completed")


def test_an_experiment_is_dragged_into_a_notebook(ui: LabPage, lab: Lab, runs: Experiment) -> None:
    lab.write_notebook("drag.ipynb", "1 + 1")
    ui.run("docmanager:open", path="drag.ipynb")
    expect(ui.notebook.cells).to_have_count(1)
    row = ui.sidebar.open().row(runs.id)
    row.hover()
    ui.page.mouse.down()
    ui.page.mouse.move(150, 500, steps=5)
    expect(ui.page.locator(".jp-DetDragImage")).to_be_visible()
    wait_until(lambda: drag_over_the_first_cell(ui), "it can be dropped there")
    ui.page.mouse.up()
    expect(ui.notebook.cells).to_have_count(3)  # one loads det_jupyter
    expect(ui.notebook.node).to_contain_text(f"show {runs.id}")
    ui.notebook.wait()
    ui.notebook.run_all()
    expect(ui.notebook.views).to_contain_text("cherry")


def drag_over_the_first_cell(ui: LabPage) -> bool:
    """Return whether the notebook takes it; a cell may just be drawn anew, or move."""
    if box := ui.notebook.cells.first.bounding_box():
        for above in (60, 30, 12):
            ui.page.mouse.move(box["x"] + 200, box["y"] + above, steps=5)
    return ui.notebook.node.locator(".jp-mod-dropTarget").is_visible()


def test_the_sidebar_is_walked_by_keys_alone(
    ui: LabPage, runs: Experiment, trials: Trials
) -> None:
    running = trials.train(name="walked")
    expect(ui.page.locator(".jp-Launcher")).to_be_focused()  # JupyterLab does that at the start
    sidebar = ui.sidebar.open()
    expect(sidebar.row(running.id)).to_be_visible()
    sidebar.node.get_by_role("grid", name="Finished experiments").focus()
    ui.page.keyboard.press("Home")
    for _ in range(2):
        ui.page.keyboard.press("Space")
        ui.page.keyboard.press("ArrowDown")
    expect(sidebar.node.locator("[role=row][aria-selected=true]")).to_have_count(2)
    ui.page.keyboard.press("Escape")
    sidebar.node.get_by_role("grid", name="Running and waiting").focus()
    ui.page.keyboard.press("ArrowRight")  # to the buttons of the row
    ui.page.keyboard.press("Enter")
    expect(sidebar.row(running.id)).to_contain_text("Paused")
    expect(sidebar.row(running.id).get_by_role("button").first).to_be_focused()
    ui.page.keyboard.press("Escape")
    expect(sidebar.node.get_by_role("grid", name="Running and waiting")).to_be_focused()
    ui.page.keyboard.press("Enter")
    expect(ui.experiment(running.id).badge).to_have_text("Paused")


def test_settings_change_what_is_shown(ui: LabPage, trials: Trials) -> None:
    expect(ui.status).to_be_visible()
    ui.set(showStatusBar=False)
    expect(ui.status).not_to_be_visible()
    ui.set(showStatusBar=True, confirmKill=False)
    expect(ui.status).to_be_visible()
    experiment = trials.train(name="unconfirmed")
    row = ui.sidebar.open().row(experiment.id)
    row.hover()
    row.get_by_role("button", name="Kill").click()
    expect(row).to_contain_text("Canceled")
    ui.run("det:open-settings")
    editor = ui.page.locator("#setting-editor, .jp-SettingsPanel").first
    expect(editor).to_contain_text("Ask before killing")
    ui.set(confirmKill=True)


def test_the_end_of_an_experiment_is_notified(ui: LabPage, trials: Trials) -> None:
    trials.ended(name="at once")
    trials.ended(name="watched", pause_s=0.3)  # 6 s: long enough to be mentioned
    ui.run("apputils:display-notifications")  # where they stay; a toast goes after 15 s
    news = ui.page.locator(".jp-Notification-List-Item")
    expect(news.filter(has_text="watched")).to_contain_text("has ended")
    expect(news).to_have_count(1)
    news.get_by_role("button", name="Open").click()
    expect(ui.page.locator(".jp-DetExperimentPage")).to_contain_text("watched")


def test_many_failures_are_one_notification(ui: LabPage, trials: Trials) -> None:
    for name in ("first", "second", "third", "fourth"):
        trials.failing(name)
    expect(ui.toasts.filter(has_text="4 experiments failed")).to_have_count(1)
    expect(ui.toasts).to_have_count(1)
    bell = ui.page.locator(".jp-Notification-Status-Text")
    expect(bell).to_have_text(re.compile("^[12]$"))  # one of failures, one of other news


def test_a_failure_is_notified_with_the_way_to_its_logs(
    ui: LabPage, trials: Trials, client: Client
) -> None:
    experiment = trials.failing("broken")
    toast = ui.toasts.filter(has_text="broken")
    expect(toast).to_contain_text("failed")
    toast.get_by_role("button", name="Open Logs").click()
    page = ui.experiment(experiment.id)
    expect(page.tab("Logs")).to_have_attribute("aria-selected", "true")
    expect(page.badge).to_have_text("Error")
    expect(page.view.get_by_role("button", name="Kill")).to_have_count(0)  # nothing is left to end
    row = ui.sidebar.open().row(experiment.id)
    row.click(modifiers=["Control"])
    bar = ui.sidebar.node.get_by_role("toolbar", name="Selected experiments")
    bar.get_by_role("button", name="Delete").click()
    expect(ui.dialog).to_contain_text("metrics, logs and checkpoints")
    ui.dialog.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


def test_a_run_that_diverges_is_a_failure_everywhere(
    ui: LabPage, trials: Trials, tmp_path: Path
) -> None:
    experiment = trials.diverging("wild", tmp_path / "end soon")
    row = ui.sidebar.open().row(experiment.id)
    expect(row).to_contain_text("Running, diverged")
    expect(row).to_contain_text("loss is")
    expect(ui.toasts.filter(has_text="diverged: loss is")).to_be_visible()
    ui.page.evaluate("() => window.jupyterapp.shell.activateById('jp-running-sessions')")
    expect(ui.page.locator(".jp-DetRunning-trial.jp-mod-error")).to_contain_text("diverged")
    ui.sidebar.open()
    (tmp_path / "end soon").touch()
    with pytest.raises(RankFailed, match=r"loss is (NaN|infinite) since batch \d"):
        experiment.wait()
    expect(row).to_contain_text("Error")
    toast = ui.toasts.filter(has_text="wild")
    expect(toast).to_have_count(1)  # its end says the same
    toast.get_by_role("button", name="Open", exact=True).click()
    page = ui.experiment(experiment.id)
    expect(page.badge).to_have_text("Error")
    expect(page.node).to_contain_text("Try a lower learning rate")
    expect(page.node).not_to_contain_text("Training continues.")


def test_two_tabs_agree_and_one_of_them_notifies(
    ui: LabPage, open_page: Callable[[], Page], lab: Lab, trials: Trials
) -> None:
    other = LabPage(open_page())
    other.open(lab.url("another"))
    experiment = trials.train(name="shared")
    for tab in (ui, other):
        expect(tab.sidebar.open().row(experiment.id)).to_contain_text("Running")
    row = ui.sidebar.row(experiment.id)
    row.hover()
    row.get_by_role("button", name="Pause").click()
    expect(other.sidebar.row(experiment.id)).to_contain_text("Paused")
    failed = trials.failing("once")
    for tab in (ui, other):
        expect(tab.sidebar.row(failed.id)).to_contain_text("Error")
    once = [tab.toasts.filter(has_text="once") for tab in (ui, other)]
    wait_until(lambda: any(toast.count() for toast in once), "one of them notifies")
    ui.page.wait_for_timeout(1000)  # the other would by now: each gathers for a second
    assert sum(toast.count() for toast in once) == 1
