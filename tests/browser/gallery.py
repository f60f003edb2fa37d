"""Draws the live view of sample experiments, for looking at: one picture for each, light and dark.

python -m tests.browser.gallery FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.sync_api import Page

from det_jupyter.notebook.view import ViewState, build_view_state, render_html
from det_jupyter.notebook.view.show import STATIC_DIR
from tests.browser.lab import chromium_page
from tests.unit.view_samples import (
    CREATED_AT,
    adaptive_experiment,
    digits_curves,
    experiment,
    search_experiment,
    trial,
)

# The variables of JupyterLab's themes that the view uses.
THEMES = {
    "light": {
        "--jp-ui-font-color1": "rgba(0,0,0,.87)", "--jp-ui-font-color2": "rgba(0,0,0,.54)",
        "--jp-border-color2": "#e0e0e0", "--jp-layout-color0": "white",
        "--jp-brand-color1": "#1976d2", "--jp-warn-color1": "#f57c00",
        "--jp-error-color1": "#d32f2f", "--jp-success-color1": "#388e3c",
        "--jp-mirror-editor-operator-color": "#aa22ff",
    },
    "dark": {
        "--jp-ui-font-color1": "rgba(255,255,255,1)",
        "--jp-ui-font-color2": "rgba(255,255,255,.7)",
        "--jp-border-color2": "#424242", "--jp-layout-color0": "#111111",
        "--jp-brand-color1": "#2196f3", "--jp-warn-color1": "#ff9800",
        "--jp-error-color1": "#f44336", "--jp-success-color1": "#4caf50",
        "--jp-mirror-editor-operator-color": "#c084fc",
    },
}  # fmt: skip

PAGE = """<!doctype html><meta charset=utf-8><style>%(css)s</style>
<body style="margin:0;background:var(--jp-layout-color0);color:var(--jp-ui-font-color1)">
<div id=cell style="padding:8px"></div>
<script type=module>
%(js)s
const traits = JSON.parse(document.getElementById('traits').textContent);
const listeners = {};
window.model = {
  get: name => traits[name],
  set: (name, value) => { traits[name] = value; },
  save_changes: () => {}, send: () => {}, off: () => {},
  on: (event, listener) => { (listeners[event] ??= []).push(listener); },
  tell: event => (listeners[event] ?? []).forEach(listener => listener()),
};
WIDGET.render({ model: window.model, el: document.getElementById('cell') });
</script>
<script type=application/json id=traits>%(traits)s</script>"""


def samples() -> dict[str, ViewState]:
    """Return the experiments to draw."""
    single = experiment(trial(progress=0.75, steps_completed=100))
    states = {"single": build_view_state(single, digits_curves(100), [], CREATED_AT + 42)}
    for name, (max_trials, num_results) in {
        "search16": (16, 14), "search300": (300, 330), "search1000": (1000, 1200)
    }.items():  # fmt: skip
        view, curves, checkpoints, now = search_experiment(max_trials, num_results)
        chosen_id = 5 if name == "search300" else None
        states[name] = build_view_state(view, curves, checkpoints, now, chosen_id=chosen_id)
    adaptive, now = adaptive_experiment()
    states["adaptive"] = build_view_state(adaptive, [], [], now)
    assert adaptive.search is not None
    flat = adaptive.search.model_copy(update={"brackets": [], "name": "random"})
    states["random"] = build_view_state(adaptive.model_copy(update={"search": flat}), [], [], now)
    return states


def page_of(state: ViewState, static: Path) -> str:
    """Return a page that shows the live view of `state`, with nothing behind it."""
    js = (static / "widget.js").read_text("utf-8")
    head, _, exported = js.rpartition("export{")
    name = exported.split(" as default")[0]
    search = state["search"]
    chosen = search["chosen"]["trial"]["id"] if search and search["chosen"] else None
    rows = search["rows"] if search else []
    traits = {"shown": state, "rows": rows, "changed_rows": [], "chosen": chosen}
    return PAGE % {
        "css": (static / "widget.css").read_text("utf-8"),
        "js": f"{head}\nconst WIDGET = {name};",
        "traits": json.dumps(traits).replace("<", "\\u003c"),
    }


def draw(page: Page, html: str, theme: str, target: Path) -> None:
    """Load `html` in a theme and keep its picture."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_content(html)
    variables = ";".join(f"{name}:{value}" for name, value in THEMES[theme].items())
    page.evaluate("style => document.documentElement.setAttribute('style', style)", variables)
    page.wait_for_timeout(300)
    page.screenshot(path=target, full_page=True)


def main(folder: Path, static: Path = STATIC_DIR) -> None:
    """Draw every sample in both themes, live and static."""
    with chromium_page(1180, 900) as page:
        page.on("pageerror", lambda error: print("page error:", error))
        for name, state in samples().items():
            for theme in THEMES:
                draw(page, page_of(state, static), theme, folder / f"{name}-{theme}.png")
        for theme in THEMES:
            body = 'style="background:var(--jp-layout-color0);color:var(--jp-ui-font-color1)"'
            card = render_html(samples()["search300"])
            draw(
                page, f"<!doctype html><body {body}>{card}", theme, folder / f"card300-{theme}.png"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else STATIC_DIR)
