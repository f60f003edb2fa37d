"""All journeys share one master, JupyterLab, Chromium and tab; each finds them tidied."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    sync_playwright,
)

from det_jupyter.client import Client
from tests.browser.lab import CHROMIUM, FLAGS
from tests.forked_programs import _programs_are_forks as _programs_are_forks
from tests.lab.complaints import Complaints
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.lab.tabs import SharedTab
from tests.lab.trials import Trials
from tests.processes import DetHome, det_home

SLOTS = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all journeys: they need a browser, and may share a busy computer."""
    here = Path(__file__).parent
    journeys = {path: here in path.parents for path in {item.path for item in items}}
    for item in items:
        if journeys[item.path]:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a picture of each page when a journey has failed."""
    report = yield
    complaints = getattr(item, "funcargs", {}).get("complaints")
    if report.failed and call.when == "call" and isinstance(complaints, Complaints):
        folder = Path(item.config.rootpath) / ".pytest_cache" / "journeys"
        report.sections.append(("pictures", "\n".join(complaints.pictures(folder, item.name))))
    return report


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """A private det_jupyter with two CPU slots; `devices.json` has simulated processes."""
    path = tmp_path_factory.mktemp("home")
    variables = {
        "DET_JUPYTER_CPU_SLOTS": str(SLOTS),
        "DET_JUPYTER_FAKE_DEVICES": str(path / "devices.json"),
    }
    with det_home(path, variables) as running:
        yield running


@pytest.fixture(scope="package")
def client(home: DetHome) -> Iterator[Client]:
    """A client of the master."""
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="module")
def module_trials(client: Client) -> Iterator[Trials]:
    """A `Trials` for a file of journeys; its experiments are deleted before the next file."""
    trials = Trials(client)
    yield trials
    trials.delete_all()


@pytest.fixture
def trials(module_trials: Trials) -> Iterator[Trials]:
    """A `Trials` for one journey: slots are free before it; its experiments end after it."""
    module_trials.end_all()
    yield module_trials
    module_trials.end_all()


@pytest.fixture
def devices(home: DetHome) -> Iterator[Callable[[dict[str, object]], None]]:
    """A function that sets the simulated processes on slots."""
    path = home.path / "devices.json"

    def put(content: dict[str, object]) -> None:
        path.write_text(json.dumps(content))

    yield put
    path.unlink(missing_ok=True)


@pytest.fixture(scope="package")
def lab(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose server finds the master."""
    with Lab(tmp_path_factory.mktemp("notebooks")).running() as lab:
        yield lab


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def shared_tab(browser: Browser) -> Iterator[SharedTab]:
    """The tab that journeys share, as loading JupyterLab takes much of the time."""
    tab = SharedTab(browser)
    yield tab
    tab.close()


@pytest.fixture
def tab(shared_tab: SharedTab, request: pytest.FixtureRequest) -> Iterator[SharedTab]:
    """The tab for a journey; after a failed journey it is closed."""
    failed_before = request.session.testsfailed
    yield shared_tab
    if request.session.testsfailed > failed_before:
        shared_tab.close()
    else:
        shared_tab.close_others()


@pytest.fixture
def complaints(request: pytest.FixtureRequest) -> Iterator[Complaints]:
    """The errors of pages; in a journey with the mark `loses_connection`, requests may fail."""
    loses = request.node.get_closest_marker("loses_connection") is not None
    complaints = Complaints(may_lose=loses)
    yield complaints
    complaints.check()


@pytest.fixture
def page(tab: SharedTab, complaints: Complaints) -> Page:
    """The tab's page, whose errors are recorded."""
    complaints.watch(tab.page)
    return tab.page


@pytest.fixture
def context(page: Page) -> BrowserContext:
    """The tab's browser profile."""
    return page.context


@pytest.fixture
def open_page(context: BrowserContext, complaints: Complaints) -> Callable[[], Page]:
    """A function that opens another tab of the browser, whose errors are recorded."""

    def opened() -> Page:
        page = context.new_page()
        complaints.watch(page)
        return page

    return opened


@pytest.fixture
def ui(tab: SharedTab, page: Page, lab: Lab) -> LabPage:
    """JupyterLab in the state after its start."""
    return tab.show(lab, "journeys")
