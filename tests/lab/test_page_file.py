"""The file of `det e export-html`, in a real browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Page, expect

from det_jupyter.client import Client
from det_jupyter.config import to_yaml
from det_jupyter.contract.documents.patches import plain
from det_jupyter.contract.messages import EffectiveConfig
from det_jupyter.front.verbs.html_page import write_page
from det_jupyter.view import build_view_state
from tests.unit.client.documents_fake import FakeDocument
from tests.unit.front.verbs.answers import Answering
from tests.unit.view.view_samples import CREATED_AT

HOSTILE = "<!--<script></script><script>document.title='ran'</script><img src=x onerror=alert()>"
VALUE = 'value-of-a-variable: "quoted" # in YAML'


class Master(Answering):
    """Answers for a search whose name, labels, lines and configuration are hostile."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.session.info.token = "the-token-of-this-master"
        environment = {"environment_variables": [f"A={VALUE}", "B=1"]}
        config = self.view.config | {"labels": [HOSTILE], "environment": environment}
        changes = {"name": HOSTILE, "config": config, "description": HOSTILE}
        self.view = self.view.model_copy(update=changes)
        self.lines = [line.model_copy(update={"text": HOSTILE}) for line in self.lines]
        self.lines.append(self.lines[0].model_copy(update={"id": 9, "text": "api_key=abcd1234"}))

    def document(self, name: str, *, experiment_id: int, chosen: int | None) -> FakeDocument:
        state = build_view_state(
            self.experiment(7), self.curves(7), self.checkpoints(7), CREATED_AT, chosen_id=chosen
        )
        return FakeDocument([plain(state)])

    def effective_config(self, experiment_id: int) -> EffectiveConfig:
        config = self.view.config
        return EffectiveConfig(yaml=to_yaml(config), config=config, origins={})

    def models(self) -> list[Any]:
        return []


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return write_page(cast("Client", Master(folder)), 7, folder / "view.html")


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page(viewport={"width": 1000, "height": 800}) as page:
        page.context.set_offline(True)
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_view_is_shown_and_nothing_in_it_is_run(page: Page, file: Path, scheme: Any) -> None:
    requested: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.emulate_media(color_scheme=scheme)
    page.goto(file.as_uri())
    expect(page.locator(".det-view")).to_contain_text(HOSTILE)
    assert page.title() == HOSTILE
    expect(page.locator(".det-bell")).to_be_hidden()  # a file cannot notify
    for tab in ("Metrics", "Timings", "System", "Config", "Checkpoints", "Logs"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel").locator("visible=true").first).not_to_be_empty()
    expect(page.locator(".det-log-foot")).to_contain_text("6 lines")
    assert {url.partition(":")[0] for url in requested} == {"file", "blob"}
    assert problems == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_the_file_has_no_secrets(file: Path) -> None:
    text = file.read_text()
    for secret in (VALUE[:19], "abcd1234", "the-token"):
        assert secret not in text


def test_a_trial_of_a_search_can_be_chosen(page: Page, file: Path) -> None:
    page.goto(file.as_uri())
    page.locator("tbody tr").first.click()
    expect(page.locator(".det-view")).to_contain_text("Trial 2 · completed")
