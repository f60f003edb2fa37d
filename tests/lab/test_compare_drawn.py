"""Comparisons and the axes of charts, drawn by a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from det_jupyter.front.notebook.handles.front_end import STATIC_DIR
from det_jupyter.view import build_view_state
from tests.browser.gallery import IMPORTANCE, SETTLE, comparison, load, page_of, page_of_comparison
from tests.unit.view.view_samples import search_experiment

# Not only empty frames.
HAS_CURVES = """() => [...document.querySelectorAll('.det-plot canvas')].every(canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size > 20;
})"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page(viewport={"width": 1100, "height": 800}) as page:
        yield page


@pytest.fixture(scope="module")
def compared(page: Page) -> Iterator[Page]:
    """Return a page with a comparison, on which no error may happen."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    load(page, page_of_comparison(comparison(), STATIC_DIR), "dark")
    yield page
    assert errors == []


def test_a_comparison_lies_within_its_page(compared: Page) -> None:
    for width in (360, 1100):
        compared.set_viewport_size({"width": width, "height": 800})
        compared.evaluate(SETTLE)
        assert compared.evaluate("document.documentElement.scrollWidth") <= width


def test_curves_are_drawn_along_every_axis(compared: Page) -> None:
    for axis, is_log_y in (("step", True), ("epoch", False), ("time", True)):
        compared.select_option(".det-comparison .det-select", axis)
        for pressed in ("Log x", "Log y", "Log x"):
            compared.get_by_role("button", name=pressed).click()
            expect(compared.locator(".det-comparison .u-over")).to_have_count(3)
            compared.wait_for_function(HAS_CURVES)
        chosen = compared.evaluate("window.model.get('settings')")
        assert (chosen["axis"], chosen["log_x"], chosen["log_y"]) == (axis, False, is_log_y)


def test_a_search_lies_within_its_page(page: Page) -> None:
    html = page_of(build_view_state(*search_experiment(16, 14), importance=IMPORTANCE), STATIC_DIR)
    page.set_viewport_size({"width": 360, "height": 800})
    load(page, html, "light")
    for width in (360, 1100):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate(SETTLE)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_scatter_is_read_by_keys_and_follows_its_choices(page: Page) -> None:
    html = page_of(build_view_state(*search_experiment(16, 14)), STATIC_DIR)
    load(page, html, "light")
    page.get_by_label("Metric", exact=True).select_option("loss")
    page.get_by_label("Hyperparameter", exact=True).select_option("hidden")
    stage = page.get_by_role("img", name="loss of each trial by hidden")
    stage.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator(".det-chosen")).to_be_visible()
    assert page.evaluate("window.model.get('settings').scatter_x") == "hidden"
