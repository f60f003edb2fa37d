"""Coming back to a saved notebook: whatever became of its kernel, each view has its picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from det_jupyter.client import Client
from det_jupyter.view.forms.place import EXPERIMENT_MIME
from tests.browser.lab import (
    CHROMIUM,
    KERNELS_ALONE,
    chromium_page,
    jupyter_lab,
    open_notebook,
    run_all,
    save,
)
from tests.processes import det_home, wait_until
from tests.trials import TRIAL_SOURCE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium"),
]

SUBMIT = """%%det_experiment
name: {name}
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: 16, pause_s: {pause_s}}}
searcher: {{name: single, metric: error, max_length: {{batches: {batches}}}}}
min_validation_period: {{batches: 10}}
resources: {{slots_per_trial: 1}}
"""
CELLS = [
    "%load_ext det_jupyter",
    TRIAL_SOURCE,
    SUBMIT.format(name="ended", pause_s=0, batches=20),
    SUBMIT.format(name="running", pause_s=0.05, batches=40_000),
]
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext"


class Server:
    """A JupyterLab, which serves Notebook 7 too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running = ExitStack()
        self.restart()

    def restart(self) -> None:
        """Stop it with its kernels, and start it on another port."""
        self.stop()
        self.lab = self._running.enter_context(jupyter_lab(self.folder, arguments=KERNELS_ALONE))
        self.notebook = self.lab.replace("/lab/tree/", "/notebooks/")

    def stop(self) -> None:
        """Stop it with its kernels; those that are still starting would hold it up for long."""
        self._running.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with det_home(tmp_path_factory.mktemp("home"), {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
        client = home.client()
        yield client
        for view in client.experiments():
            client.command(view.id, "kill")
        wait_until(
            lambda: all(v.state.is_terminal for v in client.experiments()), "all have ended"
        )
        client.session.close()


@pytest.fixture(scope="module")
def server(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("notebooks"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def page(client: Client) -> Iterator[Page]:
    with chromium_page(1200, 2200) as page:
        yield page


@pytest.fixture(scope="module")
def book(page: Page, server: Server) -> Path:
    """Return a notebook that was saved while one of its experiments ran; the kernel lives."""
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    path = server.folder / "book.ipynb"
    nbformat.write(document, path)
    open_notebook(page, server.lab, path.name)
    run_all(page)
    see_live(page, "Completed", "Running")
    save(page)
    return path


def see_live(page: Page, *badges: str) -> None:
    """Wait until both experiments are drawn live, in these states, with their curves."""
    expect(page.locator(".det-badge")).to_have_text(list(badges), timeout=60_000)
    for view in page.locator(".det-view").all():
        expect(view.locator("canvas").first).to_be_visible(timeout=30_000)
        expect(view.locator(".det-lost")).to_be_hidden(timeout=30_000)


def see_pictures(page: Page, *words: str) -> None:
    """Check that each experiment has its kept picture: number, state, curves, maybe a verdict."""
    images = page.locator(".jp-Notebook:visible .jp-OutputArea-output img")
    expect(images.nth(3)).to_be_attached(timeout=60_000)
    assert all(image.evaluate("image => image.naturalWidth") > 0 for image in images.all())
    text = page.locator(".jp-Notebook:visible").inner_text()
    for word in ("experiment 1", "experiment 2", *words):
        assert word in text
    assert not re.search("model not found|Loading widget|Error displaying", text)
    assert page.locator(".jp-Notebook:visible .det-view").count() == 0


def run_first_cell(page: Page) -> None:
    """Run `%load_ext det_jupyter` once the kernel is there."""
    page.locator(".jp-Notebook:visible .jp-CodeCell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")


def test_notebook_has_no_widget_in_it(book: Path) -> None:
    outputs = [o for cell in nbformat.read(book, 4).cells for o in cell.outputs]
    assert [sorted(output.data) for output in outputs] == [
        [EXPERIMENT_MIME, "text/html", "text/plain"]
    ] * 2


def test_browser_that_was_closed_finds_live_views_and_saves_what_happened_since(
    page: Page, server: Server, book: Path, client: Client
) -> None:
    page.goto("about:blank")
    client.command(2, "pause")
    wait_until(lambda: client.experiment(2).state == "PAUSED", "it is paused")
    open_notebook(page, server.lab, book.name)
    see_live(page, "Completed", "Paused")
    save(page)
    assert "Paused" in book.read_text()
    page.locator(".det-view").last.get_by_role("button", name="Activate").click()
    see_live(page, "Completed", "Running")


def test_restarted_kernel_is_said_to_be_gone_and_one_line_brings_the_views_back(
    page: Page, server: Server, book: Path
) -> None:
    page.evaluate(f"() => {{ {KERNEL}.session.kernel.restart(); }}")
    lost = page.locator(".det-lost:visible")
    expect(lost).to_have_count(2, timeout=5_000)
    expect(lost.last).to_contain_text("%load_ext det_jupyter")
    assert page.locator(".det-view").last.get_by_role("button", name="Pause").count() == 0
    expect(page.locator(".det-view").first.locator("canvas").first).to_be_visible()
    run_first_cell(page)
    see_live(page, "Completed", "Running")


def test_kernel_that_was_shut_down_leaves_pictures(page: Page, server: Server, book: Path) -> None:
    save(page)
    page.evaluate(f"() => {KERNEL}.shutdown()")
    expect(page.locator(".det-lost:visible")).to_have_count(2, timeout=5_000)
    page.goto("about:blank")
    page.goto(server.lab.format(path=book.name))
    see_pictures(page, "Completed", "Running")


def test_notebook_7_shows_the_pictures_and_then_live_views(
    page: Page, server: Server, book: Path
) -> None:
    page.goto(server.notebook.format(path=book.name))
    see_pictures(page, "Completed", "Running")
    run_first_cell(page)
    see_live(page, "Completed", "Running")


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "not trusted"])
def test_copy_shows_the_pictures(page: Page, server: Server, book: Path, is_trusted: bool) -> None:
    document = nbformat.read(book, 4)
    if not is_trusted:
        document.metadata["author"] = "a colleague"  # so the signature is not ours
    name = f"copy-{is_trusted}.ipynb"
    nbformat.write(document, book.with_name(name))
    # Alone in its page: the kernel of a notebook beside it would draw its live views here too.
    open_notebook(page, f"{server.lab}{'&' if '?' in server.lab else '?'}reset", name)
    see_pictures(page, "Completed", "Running")
    trusted = page.evaluate("window.jupyterapp.shell.currentWidget.model.cells.get(2).trusted")
    assert trusted is is_trusted


def test_server_that_was_restarted_shows_the_pictures(
    page: Page, server: Server, book: Path
) -> None:
    page.goto("about:blank")
    server.restart()
    open_notebook(page, server.lab, book.name)
    see_pictures(page, "Completed", "Running")
