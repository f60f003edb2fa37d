"""For each file of journeys one JupyterLab, master and Chromium; for each journey a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from det_jupyter.client import Client
from tests.browser.lab import CHROMIUM, FLAGS
from tests.lab.complaints import Complaints
from tests.lab.pages import LabPage
from tests.lab.servers import Lab
from tests.lab.trials import Trials
from tests.processes import DetHome, det_home

SLOTS = 2
VIEWPORT: ViewportSize = {"width": 1400, "height": 1000}


expect.set_options(timeout=20_000)  # of a busy machine; most is there at once


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all journeys: they need a browser, and end in a minute or two."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(150))
            item.add_marker(pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take a picture of what a failed journey has seen last."""
    report = yield
    complaints = getattr(item, "funcargs", {}).get("complaints")
    if report.failed and call.when == "call" and isinstance(complaints, Complaints):
        folder = Path(item.config.rootpath) / ".pytest_cache" / "journeys"
        report.sections.append(("pictures", "\n".join(complaints.pictures(folder, item.name))))
    return report


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """A private det_jupyter with two CPU slots; `devices.json` has made-up processes on them."""
    path = tmp_path_factory.mktemp("home")
    variables = {
        "DET_JUPYTER_CPU_SLOTS": str(SLOTS),
        "DET_JUPYTER_FAKE_DEVICES": str(path / "devices.json"),
    }
    with det_home(path, variables) as running:
        yield running


@pytest.fixture(scope="module")
def client(home: DetHome) -> Iterator[Client]:
    """A client of the master."""
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="module")
def module_trials(client: Client) -> Iterator[Trials]:
    """What submits experiments that a whole file of journeys uses; ended after it."""
    trials = Trials(client)
    yield trials
    trials.end_all()


@pytest.fixture
def trials(module_trials: Trials) -> Iterator[Trials]:
    """What submits experiments: all slots are free before, and those of the journey end after."""
    module_trials.end_all()
    yield module_trials
    module_trials.end_all()


@pytest.fixture
def devices(home: DetHome) -> Iterator[Callable[[dict[str, object]], None]]:
    """What sets the made-up processes on slots."""
    path = home.path / "devices.json"

    def put(content: dict[str, object]) -> None:
        path.write_text(json.dumps(content))

    yield put
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def lab(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose server finds the master."""
    lab = Lab(tmp_path_factory.mktemp("notebooks"))
    lab.start()
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def complaints(request: pytest.FixtureRequest) -> Iterator[Complaints]:
    """What pages complain about; a journey with the mark `loses_connection` may lose requests."""
    loses = request.node.get_closest_marker("loses_connection") is not None
    complaints = Complaints(may_lose=loses)
    yield complaints
    complaints.check()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile of its own."""
    context = browser.new_context(viewport=VIEWPORT, reduced_motion="reduce")
    context.set_default_timeout(30_000)
    yield context
    context.close()


@pytest.fixture
def open_page(context: BrowserContext, complaints: Complaints) -> Callable[[], Page]:
    """What opens a tab of the browser that is watched for complaints."""

    def opened() -> Page:
        page = context.new_page()
        complaints.watch(page)
        return page

    return opened


@pytest.fixture
def page(open_page: Callable[[], Page]) -> Page:
    """A tab of the browser."""
    return open_page()


@pytest.fixture
def ui(page: Page, lab: Lab, request: pytest.FixtureRequest) -> LabPage:
    """JupyterLab, ready, in a workspace of the journey's own."""
    opened = LabPage(page)
    opened.open(lab.url(workspace_of(request)))
    return opened


def workspace_of(request: pytest.FixtureRequest) -> str:
    """Return a name for the journey's workspace."""
    return re.sub(r"\W+", "-", request.node.name)
