"""Slots and queue in the live view, drawn by a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from det_jupyter.front.notebook.handles.front_end import STATIC_DIR
from tests.browser.gallery import SETTLE, cluster_samples, load, page_of


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page() as page:
        yield page


@pytest.mark.parametrize("name", list(cluster_samples()))
def test_nothing_sticks_out_at_any_width(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    load(page, page_of(cluster_samples()[name], STATIC_DIR), "light")
    for width in (360, 700, 1180):
        page.set_viewport_size({"width": width, "height": 700})
        page.evaluate(SETTLE)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.eval_on_selector_all(
            ".det-slots", "lists => lists.map(one => one.scrollWidth - one.clientWidth)"
        )
        assert set(sizes) <= {0}, width


@pytest.mark.parametrize("width", [360, 1180])
def test_what_is_told_of_a_slot_lies_within_the_view(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    page.mouse.move(0, 0)  # what it points at would be shown, too
    html = page_of(cluster_samples()["slots"], STATIC_DIR)
    load(page, html, "dark")
    before = ""
    for key in ("0.0.0", "0.0.5", "0.0.7"):
        page.hover(f'[data-slot="{key}"]')
        expect(page.locator(".det-tip")).to_be_visible()
        expect(page.locator(".det-tip")).not_to_have_text(before)
        before = page.locator(".det-tip").inner_text()
        tip = page.locator(".det-tip").bounding_box()
        view = page.locator(".det-view").bounding_box()
        assert tip is not None
        assert view is not None
        assert view["x"] <= tip["x"] <= tip["x"] + tip["width"] <= view["x"] + view["width"]
        assert view["y"] <= tip["y"] <= tip["y"] + tip["height"] <= view["y"] + view["height"]


def test_keys_walk_through_the_slots(page: Page) -> None:
    page.mouse.move(0, 0)  # what it points at would be shown, too
    html = page_of(cluster_samples()["slots"], STATIC_DIR)
    load(page, html, "light")
    page.locator(".det-cluster summary").focus()
    page.keyboard.press("Tab")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".det-tip")).to_contain_text("pid 4711, of anna")
    page.keyboard.press("Escape")
    expect(page.locator(".det-tip")).to_be_hidden()
