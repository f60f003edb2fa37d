"""Journeys in which something breaks: each has a defined answer, and the page comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import find_master
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.lab.tabs import SharedTab
from tests.lab.trials import Trials
from tests.processes import DetHome, find, wait_until, wait_until_gone

pytestmark = pytest.mark.loses_connection
PING_MS = 15_000


@pytest.fixture(scope="module", autouse=True)
def _closes_the_tab(shared_tab: SharedTab) -> Iterator[None]:
    """Leave no turned clock and no wrong token to the journeys that follow."""
    yield
    shared_tab.close()


@pytest.fixture
def survivor(module_trials: Trials) -> Experiment:
    """An experiment that trains, journey after journey."""
    client = module_trials.client
    running = [view for view in client.experiments() if view.state == "ACTIVE"]
    return Experiment(client, running[0].id) if running else module_trials.train(name="survives")


@pytest.fixture
def watched(ui: LabPage, survivor: Experiment) -> tuple[LabPage, Experiment]:
    """JupyterLab with the sidebar and the page of that experiment."""
    watch(ui, survivor)
    return ui, survivor


def watch(ui: LabPage, experiment: Experiment) -> None:
    """Open the sidebar and the page of an experiment."""
    ui.sidebar.open()
    ui.run("det:open-experiment", experiment_id=experiment.id)
    see_up(ui, experiment)


def see_up(ui: LabPage, experiment: Experiment) -> None:
    """Wait until everything is live."""
    page = ui.experiment(experiment.id)
    expect(ui.status).to_have_attribute("data-det-link", "up")
    expect(page.badge).to_have_text("Running")
    expect(page.view.locator(".det-lost")).to_be_hidden()
    expect(ui.sidebar.row(experiment.id)).to_contain_text("Running")
    expect(ui.page.locator(".jp-DetLinkBanner:visible")).to_have_count(0)
    steps = page.view.locator(".det-header")
    expect(steps).not_to_have_text(steps.inner_text())


def see_cut(ui: LabPage, experiment: Experiment, state: str, sentence: str) -> None:
    """Wait until the page says what is wrong; what it has shown stays."""
    expect(ui.status).to_have_attribute("data-det-link", state)
    expect(ui.sidebar.node.locator(".jp-DetLinkBanner")).to_contain_text(sentence)
    page = ui.experiment(experiment.id)
    expect(page.node.locator(".jp-DetLinkBanner")).to_contain_text(sentence)
    expect(page.view.locator(".det-lost")).to_contain_text("Not live")
    expect(page.view.locator(".det-name")).to_have_text("survives")


def test_the_reader_is_killed(watched: tuple[LabPage, Experiment], home: DetHome) -> None:
    ui, experiment = watched
    reader = find(home.path, "det_jupyter.reader")
    assert reader is not None
    reader.kill()
    wait_until_gone(reader.pid)
    wait_until(
        lambda: (
            (again := find(home.path, "det_jupyter.reader")) is not None
            and again.pid != reader.pid
        ),
        "another one runs",
    )
    see_up(ui, experiment)


def test_the_jupyter_server_is_restarted(watched: tuple[LabPage, Experiment], lab: Lab) -> None:
    ui, experiment = watched
    lab.stop()
    see_cut(ui, experiment, "cut", "Retrying")
    lab.start()
    see_up(ui, experiment)


def test_the_master_is_killed_and_another_takes_over(
    watched: tuple[LabPage, Experiment], home: DetHome
) -> None:
    ui, experiment = watched
    master = home.master()
    master.kill()
    wait_until_gone(master.pid)
    wait_until(lambda: (m := find_master()) is not None and m.pid != master.pid, "another runs")
    see_up(ui, experiment)  # the trial has trained on


def test_the_master_is_stopped_and_started_by_the_button(
    watched: tuple[LabPage, Experiment], client: Client
) -> None:
    ui, experiment = watched
    client.session.post("/master/stop", {"everything": False})
    see_cut(ui, experiment, "no-master", "master")
    expect(ui.status).to_contain_text("stopped")
    banner = ui.sidebar.node.locator(".jp-DetLinkBanner")
    banner.get_by_role("button", name="Start the master").click()
    see_up(ui, experiment)


def test_the_master_is_frozen_and_goes_on(
    watched: tuple[LabPage, Experiment], home: DetHome
) -> None:
    ui, experiment = watched
    master = home.master()
    master.suspend()
    try:
        expect(ui.status).not_to_have_attribute("data-det-link", "up")
        expect(ui.sidebar.node.locator(".jp-DetLinkBanner")).to_be_visible()
    finally:
        master.resume()
    see_up(ui, experiment)


def test_a_master_of_another_version_is_said_with_the_command(
    watched: tuple[LabPage, Experiment], home: DetHome
) -> None:
    ui, experiment = watched
    note = home.path / "runtime" / "master.json"
    before = note.read_text()
    changed = json.loads(before) | {"protocol": 1, "version": "0.0.1"}
    note.write_text(json.dumps(changed))  # the reader serves on, and the page says what is wrong
    try:
        expect(ui.status).to_have_attribute("data-det-link", "mismatch")
        banner = ui.sidebar.node.locator(".jp-DetLinkBanner")
        expect(banner).to_contain_text("0.0.1")
        expect(banner.locator("code")).to_contain_text("det")
    finally:
        note.write_text(before)
    see_up(ui, experiment)


def test_the_network_goes_and_comes_back(ui: LabPage, survivor: Experiment) -> None:
    context = ui.page.context
    context.clock.install()  # goes on, until the tab is closed
    ui.reload()
    watch(ui, survivor)
    context.set_offline(True)
    # Chromium keeps open sockets when it is offline: pings that are not answered find out.
    wait_until(lambda: cut_after_a_ping(ui), "it is found out")
    see_cut(ui, survivor, "cut", "Retrying")
    context.set_offline(False)
    see_up(ui, survivor)


def cut_after_a_ping(ui: LabPage) -> bool:
    ui.page.context.clock.fast_forward(PING_MS)
    ui.page.wait_for_timeout(500)  # on a line that is not cut, news would come meanwhile
    return ui.status.get_attribute("data-det-link") == "cut"


def test_a_token_that_is_not_valid_any_more_is_said(
    watched: tuple[LabPage, Experiment], lab: Lab, context: BrowserContext
) -> None:
    ui, experiment = watched
    lab.stop()
    lab.token = "another"
    context.clear_cookies()
    lab.start()
    expect(ui.status).to_have_attribute("data-det-link", "refused")
    expect(ui.sidebar.node.locator(".jp-DetLinkBanner")).to_be_visible()
    ui.open(lab.url("after"))
    expect(ui.status).to_have_attribute("data-det-link", "up")
    expect(ui.sidebar.open().row(experiment.id)).to_contain_text("Running")


def test_a_page_with_a_wrong_token_is_refused(
    watched: tuple[LabPage, Experiment], page: Page, lab: Lab
) -> None:
    ui, _ = watched
    answers = ui.page.evaluate(
        """async () => {
          const base = new URL('/det-jupyter/', location.href);
          const status = async (url, init) => (await fetch(url, init)).status;
          const socket = new Promise(resolve => {
            const one = new WebSocket(`ws://${location.host}/det-jupyter/socket?token=wrong`);
            one.onopen = () => resolve('opened');
            one.onerror = () => resolve('refused');
          });
          const headers = { Authorization: 'token wrong' };
          return [
            await status(new URL('info', base), { headers, credentials: 'omit' }),
            await status(new URL('master/start', base),
                         { method: 'POST', headers, credentials: 'omit' }),
            await socket
          ];
        }"""
    )
    assert answers[:2] == [403, 403]
    page.goto("about:blank")  # an answer to the page would bring its cookie back
    page.context.clear_cookies()
    page.goto(f"{lab.root}lab?token=wrong")
    expect(page.get_by_role("textbox", name="Password or token:")).to_be_visible()
