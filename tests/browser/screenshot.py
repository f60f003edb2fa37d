"""Draws docs/images: an example in JupyterLab while it trains.

python -m tests.browser.screenshot quickstart|search|scheduling|compare|measured|sidebar [FILE]

`quickstart` is a moving picture, from the submission to the training's end.
`measured` draws the tabs about where a trial's time goes, light and dark; FILE is one of them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Error, Locator, Page, expect

from tests.browser.lab import chromium_page, jupyter_lab
from tests.lab.pages import LabPage
from tests.processes import det_home

ROOT = Path(__file__).parents[2]


HEIGHTS = {
    "quickstart": 800, "search": 1500, "scheduling": 900, "compare": 1320, "measured": 1240,
    "sidebar": 1240,
}  # fmt: skip
TABS = ["metrics", "timings", "system"]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
MEASURED_S = 90
FRAME_S, LAST_FRAME_S, WIDTH = 0.4, 3.0, 960
SLOTS = {"DET_JUPYTER_CPU_SLOTS": "2"}
SETTINGS = {"scheduling": {}, "sidebar": {"DET_JUPYTER_CPU_SLOTS": "8"}}


def main(example: str, target: Path) -> None:
    """Run an example, and save the last picture of its view in the state that it demonstrates."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        det_home(Path(scratch) / "home", SETTINGS.get(example, SLOTS)),
    ):
        folder = Path(scratch) / "notebooks"
        folder.mkdir()
        if example == "compare":
            write_comparison(folder / "compare.ipynb")
        elif example == "measured":
            write_measured(folder / "measured.ipynb")
        elif example == "sidebar":
            write_sidebar(folder / "sidebar.ipynb")
        elif example == "quickstart":
            write_part(
                folder / "quickstart.ipynb", "%%det_experiment", {"epochs: 6": "epochs: 30"}
            )
        elif example == "search":
            write_part(folder / "search.ipynb", "--var asha", {"max_trials: 9": "max_trials: 24"})
        else:
            shutil.copy(ROOT / "examples" / f"{example}.ipynb", folder)
        with jupyter_lab(folder) as address, chromium_page(1280, HEIGHTS[example]) as page:
            page.goto(address.format(path=f"{example}.ipynb"))
            notebook = LabPage(page).notebook
            notebook.wait()
            notebook.run_all()
            if example == "compare":
                keep_comparison(page, target)
            elif example == "measured":
                keep_measured(page, target.parent)
            elif example == "sidebar":
                keep_sidebar(page, target)
            elif example == "quickstart":
                keep_recording(page, target)
            elif example == "scheduling":
                keep_last_waiting(page, "small", target)
            else:
                keep_last_running(page, target)


def write_comparison(target: Path) -> None:
    """Write a notebook that compares the quickstart with a smaller network."""
    notebook = json.loads((ROOT / "examples/quickstart.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    trained = [
        source.replace("max_length: {epochs: 6}", "max_length: {epochs: 10}")
        for source in sources[: sources.index("experiment.wait()") + 1]
    ]
    model = next(source for source in trained if "def make_model" in source)
    submission = next(source for source in trained if "%%det_experiment" in source)
    smaller = model.replace("32", "8").replace("64", "16")
    again = submission.replace("name: digits", "name: smaller").replace("lr: 0.05", "lr: 0.02")
    compared = "import det_jupyter\n\ndet_jupyter.compare(1, 2)"
    new = [*trained, smaller, again, "experiment.wait()", compared]
    notebook["cells"] = [
        {**cells[0], "id": f"cell-{i}", "source": source, "outputs": []}
        for i, source in enumerate(new)
    ]
    target.write_text(json.dumps(notebook), "utf-8")


def write_part(target: Path, last: str, changes: dict[str, str]) -> None:
    """Write an example up to the first cell that has the text `last`, with these changes in it."""
    notebook = json.loads((ROOT / "examples" / target.name).read_text("utf-8"))
    cells = notebook["cells"]
    end = next(i for i, cell in enumerate(cells) if last in cell["source"][0])
    for old, new in changes.items():
        cells[end]["source"] = [line.replace(old, new) for line in cells[end]["source"]]
    notebook["cells"] = cells[: end + 1]
    target.write_text(json.dumps(notebook), "utf-8")


SLOW_DATA = """
class Photos(torch.utils.data.Dataset):
    def __init__(self, images, seconds):
        self.images, self.seconds = images, seconds

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        time.sleep(self.seconds)  # as if it were decoded
        return self.images[i]
"""


def write_measured(target: Path) -> None:
    """Write a notebook of a longer quickstart, in which one rank waits for its data."""
    notebook = json.loads((ROOT / "examples/quickstart.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    kept = sources[: next(i for i, s in enumerate(sources) if "%%det_experiment" in s) + 1]
    slow = "Photos(training_set, 0.0004 * self.context.distributed.get_rank())"
    new = [
        source.replace("import torch\n", "import time\n\nimport torch\n", 1)
        .replace("DataLoader(training_set,", f"DataLoader({slow},")
        .replace("max_length: {epochs: 6}", "max_length: {epochs: 400}")
        for source in kept
    ]
    new.insert(-1, SLOW_DATA.strip())
    notebook["cells"] = [
        {**cells[0], "id": f"cell-{i}", "source": source, "outputs": []}
        for i, source in enumerate(new)
    ]
    target.write_text(json.dumps(notebook), "utf-8")


BUSY = """
import time

class SlowTrial(DigitsTrial):
    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(0.5)
        return super().train_batch(batch, epoch_idx, batch_idx)

def start(name, slots, width, searcher, **options):
    settings = {
        **config, "name": name, "resources": {"slots_per_trial": slots},
        "searcher": {**config["searcher"], **searcher, "max_length": {"epochs": 40}},
        "hyperparameters": {"global_batch_size": 64, "width": width},
    }
    return det_jupyter.submit(SlowTrial, settings, **options)

widths = {"type": "int", "minval": 4, "maxval": 64}
start("digits, 4 slots", 4, 32, {}, labels=["baseline"])
start("width search", 1, widths, {"name": "random", "max_trials": 16, "max_concurrent_trials": 2})
start("digits, 2 slots", 2, 32, {})
start("digits, 8 slots", 8, 32, {})
start("narrow", 1, 8, {})
"""


def write_sidebar(target: Path) -> None:
    """Write a notebook that registers two versions of a model, and fills the slots."""
    notebook = json.loads((ROOT / "examples/model_registry.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    last = next(i for i, source in enumerate(sources) if "set_alias" in source)
    notebook["cells"] = [
        {**cells[0], "id": f"cell-{i}", "source": source, "outputs": []}
        for i, source in enumerate([*sources[: last + 1], BUSY.strip()])
    ]
    target.write_text(json.dumps(notebook), "utf-8")


def keep_sidebar(page: Page, target: Path) -> None:
    """Save a picture of the sidebar, when all that is running has reported a metric."""
    page.evaluate("() => window.jupyterapp.commands.execute('det:show-sidebar')")
    sidebar = page.locator("#det-jupyter-sidebar")
    widen(page, sidebar, 350)
    expect(sidebar.get_by_text("needs 8 slots").first).to_be_visible()
    expect(sidebar.locator(".det-mod-active .det-row-metric").nth(2)).to_contain_text("0.")
    page.wait_for_timeout(1000)
    sidebar.screenshot(path=target)


def widen(page: Page, sidebar: Locator, width: int) -> None:
    """Drag the right border of the sidebar."""
    box = sidebar.bounding_box()
    assert box is not None
    edge, y = box["x"] + box["width"] + 1, box["y"] + 300
    page.mouse.move(edge, y)
    page.mouse.down()
    page.mouse.move(edge + width - box["width"], y, steps=5)
    page.mouse.up()


def keep_measured(page: Page, folder: Path) -> None:
    """Save pictures of the tabs in both themes, as soon as they have content."""
    page.wait_for_selector(".det-view .det-tab", timeout=120_000)
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.wait_for_timeout(1000 * MEASURED_S)
    for look, theme in THEMES.items():
        page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })",
            theme,
        )
        for tab in TABS:
            page.click(f".det-view [role=tab][aria-controls$='-{tab}-panel']")
            page.evaluate("() => document.querySelector('.det-view').scrollIntoView()")
            page.wait_for_timeout(6000)
            page.screenshot(path=folder / f"{tab}-{look}.png")


def keep_comparison(page: Page, target: Path) -> None:
    """Save the picture of the comparison, by epoch, when it is drawn."""
    page.wait_for_selector(".det-comparison .u-over", timeout=120_000)
    page.select_option(".det-comparison .det-select", "epoch")
    page.evaluate(
        "() => document.querySelector('.det-comparison').closest('.jp-Cell').scrollIntoView()"
    )
    page.wait_for_timeout(1500)
    page.screenshot(path=target)


def keep_recording(page: Page, target: Path) -> None:
    """Save frames of the view, from the first to the training's end, as one moving picture."""
    page.wait_for_selector(".det-view", timeout=120_000)
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    cell = "() => document.querySelector('.det-view').closest('.jp-Cell').scrollIntoView()"
    frames: list[Image.Image] = []
    while not frames or "Completed" not in page.inner_text(".det-view"):
        page.evaluate(cell)
        frames.append(Image.open(BytesIO(page.screenshot())).convert("RGB"))
        page.wait_for_timeout(1000 * FRAME_S)
    page.wait_for_timeout(1000)
    frames.append(Image.open(BytesIO(page.screenshot())).convert("RGB"))
    for frame in frames:
        frame.thumbnail((WIDTH, WIDTH))
    times = [int(1000 * FRAME_S)] * (len(frames) - 1) + [int(1000 * LAST_FRAME_S)]
    frames[0].save(
        target,
        save_all=True,
        append_images=frames[1:],
        duration=times,
        loop=0,
        quality=80,
        method=6,
    )


def keep_last_waiting(page: Page, name: str, target: Path) -> None:
    """Save a picture repeatedly while the view of that experiment shows why it waits."""
    deadline = time.monotonic() + 90
    was_seen = False
    while time.monotonic() < deadline:
        try:
            views = page.query_selector_all(".det-view")
            texts = [view.inner_text() for view in views]
            titles = [text.split("\n")[:2] for text in texts]
            waits = [
                view
                for view, text, title in zip(views, texts, titles, strict=True)
                if title == ["Queued", name] and "Slots and queue" in text
            ]
            if waits:
                waits[-1].scroll_into_view_if_needed()
                picture = page.screenshot()
                # It still waits, so the picture shows the reason.
                if waits[-1].inner_text().startswith("Queued"):
                    target.write_bytes(picture)
                    was_seen = True
            elif was_seen:
                return
        except Error:  # the view has just disappeared
            pass
        time.sleep(0.05)
    raise SystemExit("the view never showed an experiment that waits")


SHOW_VIEW = """() => {
  const end = document.querySelector('.jp-WindowedPanel-outer');
  const view = document.querySelector('.det-view');
  if (view) view.scrollIntoView(); else end.scrollTop = end.scrollHeight;
}"""


def keep_last_running(page: Page, target: Path) -> None:
    """Save a picture repeatedly, until the training of the last cell has ended."""
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.add_style_tag(content=".Toastify { display: none; }")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        page.evaluate(SHOW_VIEW)  # a view outside of the window is not there, or draws nothing
        view = page.query_selector(".det-view")
        try:
            text = view.inner_text() if view else ""
        except Error:  # the view was replaced at this moment
            text = ""
        if "Completed" in text[:40]:
            return
        if "Running" in text[:40] and "accuracy" in text:
            page.screenshot(path=target)
        time.sleep(0.5)
    raise SystemExit("the view never showed an experiment that has ended")


if __name__ == "__main__":
    name, *files = sys.argv[1:] or ["quickstart"]
    kind = "webp" if name == "quickstart" else "png"
    main(name, Path(files[0]) if files else ROOT / f"docs/images/{name}.{kind}")
