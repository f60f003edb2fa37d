"""Checks that texts can be read: computes WCAG's contrast of painted texts, in the page."""

from __future__ import annotations

from collections.abc import Sequence

from playwright.sync_api import Page

# WCAG 2 (AA) requires 4.5 to 1 for normal text, and 3 to 1 for large text.
_LOOK = """([selectors, wanted]) => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const over = (colors) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(c => c / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    const colors = [];
    for (let one = node; one; one = one.parentElement) {
      colors.unshift(getComputedStyle(one).backgroundColor);
    }
    return ['white', ...colors];
  };
  const found = [];
  for (const selector of selectors) {
    for (const node of document.querySelectorAll(selector)) {
      const style = getComputedStyle(node);
      const isDisabled = node.closest('[disabled], [aria-disabled=true]') !== null;
      if (isDisabled || !node.textContent.trim() || !node.checkVisibility()) { continue; }
      const layers = behind(node);
      const [front, back] = [luminance(over([...layers, style.color])), luminance(over(layers))];
      const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
      const isLarge = parseFloat(style.fontSize) >= 24;
      if (ratio < (isLarge ? 3 : wanted)) {
        found.push(`${selector} "${node.textContent.trim().slice(0, 30)}": ${ratio.toFixed(2)}`);
      }
    }
  }
  return [...new Set(found)];
}"""


def low_contrast(page: Page, selectors: Sequence[str], wanted: float = 4.5) -> list[str]:
    """Return the texts of these elements whose contrast is below `wanted`, with their contrast."""
    return list(page.evaluate(_LOOK, [list(selectors), wanted]))
