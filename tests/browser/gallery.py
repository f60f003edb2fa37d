"""Draws the live view of sample experiments: one picture of each, light and dark.

python -m tests.browser.gallery FOLDER [STATIC [NAME...]]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from det_jupyter.config.yaml_output import to_yaml
from det_jupyter.contract.messages import (
    CheckpointView,
    ClusterView,
    DiskStatus,
    ExperimentView,
    ImportanceView,
    LogLine,
    LogPage,
    QueueEntry,
    RoomWait,
    Series,
    SeriesPage,
    State,
)
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.front.notebook.handles.front_end import STATIC_DIR
from det_jupyter.master.machine.rules.configurations import resolve_config
from det_jupyter.view import ViewState, build_view_state, render_html
from det_jupyter.view.forms.comparison_card import comparison_html
from det_jupyter.view.making.comparison_view import build_comparison
from det_jupyter.view.making.results import Compared
from det_jupyter.view.model.comparison import ComparisonState
from tests.browser.lab import chromium_page
from tests.unit.view import view_cluster_samples as clusters
from tests.unit.view.view_samples import (
    CREATED_AT,
    adaptive_experiment,
    digits_curves,
    experiment,
    failure,
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

TABS = ["metrics", "logs", "config", "checkpoints"]
WIDTHS = [420, 1180, 2600]

IMPORTANCE = ImportanceView(
    metric="accuracy",
    num_trials=214,
    shares={"lr": 0.712, "optimizer.name": 0.19, "hidden": 0.071, "optimizer.momentum": 0.027},
)

PAGE = """<!doctype html><meta charset=utf-8><style>%(css)s</style>
<body style="margin:0;background:var(--jp-layout-color0);color:var(--jp-ui-font-color1)">
<div id=cell style="padding:8px"></div>
<script type=module>
%(js)s
const { traits, answers } = JSON.parse(document.getElementById('data').textContent);
const listeners = {};
window.model = {
  get: name => traits[name],
  set: (name, value) => { traits[name] = value; },
  save_changes: () => {}, off: () => {},
  send: ({ type, request, query }) => {
    const answer = answers[query ? `${type} of ${query.of}` : type];
    if (answer) listeners['msg:custom'].forEach(listener => listener(
      { type, request, error: '', ...answer }));
  },
  on: (event, listener) => { (listeners[event] ??= []).push(listener); },
  tell: event => (listeners[event] ?? []).forEach(listener => listener()),
};
WIDGET.render({ model: window.model, el: document.getElementById('cell') });
</script>
<script type=application/json id=data>%(data)s</script>"""


LOGS = [
    (0, "epoch 3:  42%|████▏     | 42/100 [00:07<00:10, 5.61it/s]", None),
    (1, "2026-11-22 13:25:01,123 - data - WARNING - 3 files of 1,200 are empty", "warning"),
    (0, "loss 0.4231, accuracy 0.8714", None),
    (1, "Traceback (most recent call last):", "error"),
    (1, '  File "Cell In[5]", line 12, in train_batch', "error"),
    (1, "    loss = self.model(images).log_softmax(1)[range(len(labels)), labels].mean() * "
        "self.scale_that_has_a_long_name", "error"),
    (1, "ValueError: shapes differ: (64, 10) and (64, 12)", "error"),
    (0, "another rank is gone: Connection closed by peer", None),
]  # fmt: skip


def log_page() -> dict[str, Any]:
    """Return the kernel's answer to a request for lines of logs."""
    lines = [
        LogLine.model_validate(
            {"id": i, "at": CREATED_AT + i, "trial_id": 9, "run": 1, "rank": rank, "text": text,
             "level": level}
        )
        for i, (rank, text, level) in enumerate(LOGS)
    ]  # fmt: skip
    return LogPage(lines=lines, total=4312, last_id=8, is_over=True).model_dump()


def answers() -> dict[str, Any]:
    """Return the kernel's answers, by the type of the question."""
    config, origins = resolve_config(
        {"name": "digits", "entrypoint": "DigitsTrial", "hyperparameters": {"lr": 0.05},
         "searcher": {"name": "single", "metric": "accuracy", "max_length": {"epochs": 6}}},
        {"resources": {"slots_per_trial": 2}},
        default_seed=7,
    )  # fmt: skip
    return {
        "tabs": {"text": (STATIC_DIR / "tabs.js").read_text("utf-8")},
        "logs": log_page(),
        "series of metrics": {"page": metrics_page().model_dump()},
        "config": {
            "yaml": to_yaml(config.to_document(), origins), "template": "two-slots", "notices": []
        },
        "checkpoints": {"checkpoints": checkpoints(), "total": 3, "best": "c1"},
    }  # fmt: skip


def checkpoints() -> list[dict[str, Any]]:
    """Return three checkpoints, one of them deleted."""
    saved = [
        CheckpointView(
            uuid=f"c{i}", experiment_id=7, trial_id=9, steps_completed=100 - 22 * i,
            path=f"/home/ada/.det_jupyter/checkpoints/7/9/5e1f0c{i}", size_bytes=2_481_000,
            created_at=CREATED_AT - 60 * i, searcher_metric=metric,
        )
        for i, metric in enumerate([0.958, 0.961, None])
    ]  # fmt: skip
    saved[2].state = "DELETED"
    return [one.model_dump() for one in saved]


def metrics_page() -> SeriesPage:
    """Return the kernel's answer to a request for metrics, of a long run."""
    steps = [float(i * 40) for i in range(600)]
    series = []
    for name, level, source in (
        ("loss", 2.3, "batches"), ("loss", 2.4, "validation"), ("accuracy", 0.9, "validation"),
        ("grad_norm", 30.0, "batches"), ("lr", 0.1, "batches"), ("f1", 0.8, "validation"),
    ):  # fmt: skip
        x = steps if source == "batches" else steps[9::30]
        mid = [level * (0.1 + math.exp(-at / 5000)) * (1 + math.sin(at * at) / 9) for at in x]
        spread = 0.08 * level if source == "batches" else 0.0
        series.append(
            Series(
                source=source, name=name, title=name, x=x, mid=mid,
                low=[value - spread for value in mid],
                high=[v + spread * (1 + math.cos(at)) for at, v in zip(x, mid, strict=True)],
            )
        )  # fmt: skip
    return SeriesPage(series=series, began_at=CREATED_AT)


def samples() -> dict[str, ViewState]:
    """Return the experiments to draw."""
    single = experiment(trial(progress=0.75, steps_completed=100))
    single.config["labels"] = ["baseline", "two layers"]
    single.config["description"] = "As on Monday, with weight decay.\nWider is no better."
    states = {"single": build_view_state(single, digits_curves(100), [], CREATED_AT + 42)}
    alarm = "train_batch: rank 1, batch 7: loss is nan, the first that is not finite"
    bad = experiment(trial(progress=0.75, alarms=[alarm]))
    states["alarm"] = build_view_state(bad, digits_curves(100), [], CREATED_AT + 42)
    for name, (max_trials, num_results) in {
        "search16": (16, 14), "search300": (300, 330), "search1000": (1000, 1200)
    }.items():  # fmt: skip
        view, curves, checkpoints, now = search_experiment(max_trials, num_results)
        chosen_id = 5 if name == "search300" else None
        states[name] = build_view_state(
            view, curves, checkpoints, now, chosen_id=chosen_id, importance=IMPORTANCE
        )
    failed = failure(rank=1, traceback="Traceback (most recent call last):\nValueError: …\n")
    broken = experiment(trial(state=State.ERROR, failure=failed, allocation=None))
    broken = broken.model_copy(update={"state": State.ERROR})
    states["failed"] = build_view_state(broken, digits_curves(60), [], CREATED_AT + 42)
    states |= cluster_samples()
    adaptive, now = adaptive_experiment()
    states["adaptive"] = build_view_state(adaptive, [], [], now)
    assert adaptive.search is not None
    flat = adaptive.search.model_copy(update={"brackets": [], "name": "random"})
    states["random"] = build_view_state(adaptive.model_copy(update={"search": flat}), [], [], now)
    return states


def waiting_with(queue: list[QueueEntry]) -> ClusterView:
    """Return slots that other experiments hold, and a queue."""
    return clusters.waiting()[1].model_copy(update={"queue": queue, "num_waiting": len(queue)})


def pausing() -> ExperimentView:
    """Return an experiment that is being paused: its ranks have not left yet."""
    leaving = Leaving(
        experiment_id=7, then="pauses", asked_at=clusters.NOW - 45, killed_at=clusters.NOW + 3555,
        num_slots=4, num_ranks=4, behind=[1], batch=118, since=clusters.NOW - 52,
        checked_at=clusters.NOW - 50, saved_at=100, num_unsaved=18,
    )  # fmt: skip
    allocation = clusters.leaving_for(7)
    return experiment(
        trial(state=State.PAUSING, allocation=allocation, leaving=leaving), state=State.PAUSING
    )


def waits_for_room() -> ExperimentView:
    """Return an experiment that does not train because its disk is full."""
    wait = RoomWait(folder="/data/training", needs_bytes=3 * 10**8, since=clusters.NOW - 300)
    return experiment(trial(room=wait, waiting_for=wait.sentence))


def _disk(**changes: Any) -> DiskStatus:
    status = DiskStatus(
        folder="/data/training", total_bytes=10**12, free_bytes=12 * 10**8, state="low",
        lost_bytes=3 * 10**8, over_s=600.0, full_in_s=2400.0, writes={7: 2 * 10**8},
    )  # fmt: skip
    return status.model_copy(update=changes)


DISKS = [
    _disk(state="full", is_full=True, free_bytes=3 * 10**7, full_in_s=None),
    _disk(folder="/scratch", agent_id="node-b", writes={}),
]


def cluster_samples() -> dict[str, ViewState]:
    """Return experiments that wait, and experiments that share slots with others."""
    running = experiment(trial())
    waiting = experiment(clusters.waiting_trial())
    making_room = experiment(trial(allocation=clusters.leaving_for(5)))
    long = clusters.LONG_NAME
    names = [clusters.held(0, 4, long), clusters.held(1, 5, long, "leaving")]
    queue = [clusters.entry(31, 4, long), clusters.entry(1, 7, long, position=1)]
    two = clusters.cluster(
        clusters.pool(clusters.agent("left", names)),
        clusters.pool(
            clusters.agent("right", [clusters.slot_status(0)], connected=False),
            name="big",
            policy="fair_share",
        ),
        queue=queue,
    )
    search, *_ = search_experiment(16, 14)
    for each in search.trials:
        each.allocation = None
    search.trials[-1].is_resting = False
    number = search.trials[-1].id
    own = [clusters.entry(number, 7, "digits", reason=clusters.reason(number))]
    slots = clusters.cluster(clusters.every_kind_of_slot())
    shown: dict[str, tuple[ExperimentView, ClusterView]] = {
        "searchwaiting": (search, waiting_with(own)),
        "waiting": clusters.waiting(),
        "slots": (making_room, slots),
        "slots1": (
            running,
            clusters.cluster(clusters.pool(clusters.agent("local", [clusters.held(0, 7)]))),
        ),
        "slots64": (running, clusters.crowd(8)),
        "slots1000": (running, clusters.crowd(125)),
        "noslots": (waiting, clusters.cluster(clusters.pool())),
        "pausing": (pausing(), slots),
        "disks": (waits_for_room(), slots.model_copy(update={"disks": DISKS})),
        "pools": (waiting, two),
    }
    return {
        name: build_view_state(
            view,
            [],
            [],
            clusters.NOW,
            cluster=cluster,
            reasons={e.trial_id: e.reason for e in cluster.queue if e.experiment_id == view.id},
        )
        for name, (view, cluster) in shown.items()
    }


def comparison() -> ComparisonState:
    """Return three experiments side by side, one of them a search."""
    first = experiment(trial(best_metric=0.981, slot_seconds=640.0), id=3, name="digits")
    slower = trial(best_metric=0.964, hparams={"global_batch_size": 32, "lr": 0.01})
    second = experiment(slower, id=7, name="slower")
    second.config["resources"] = {"slots_per_trial": 4}
    search, curves, _, _ = search_experiment(16, 14)
    search = search.model_copy(update={"id": 12, "name": "search"})
    best = max(search.trials, key=lambda t: t.best_metric or 0.0)
    before = {"Cell In[3]": "class Digits:\n    width = 64\n    depth = 2\n"}
    after = {"Cell In[8]": "class Digits:\n    width = 128\n    depth = 2\n"}
    return build_comparison(
        [
            Compared(
                experiment=view, trial=shown, is_trial=False, curves=own, code=code,
            )
            for view, shown, own, code in (
                (first, first.trials[0], digits_curves(100), before),
                (second, slower, digits_curves(160, pace=50), after),
                (search, best, [c for c in curves if c.trial_id == best.id], before),
            )
        ],
        CREATED_AT + 42,
    )  # fmt: skip


def page_of_comparison(state: ComparisonState, static: Path) -> str:
    """Return a page that shows a comparison."""
    return _page({"comparison": state}, static)


def page_of(state: ViewState, static: Path, tab: str = "overview") -> str:
    """Return a page that shows the live view of `state` at a tab."""
    search = state["search"]
    chosen = search["chosen"]["trial"]["id"] if search and search["chosen"] else None
    traits: dict[str, Any] = {
        "document": {"version": 1, "state": state},
        "patch": {"since": 1, "operations": []},
        "chosen": chosen,
        "settings": {"tab": tab},
    }
    return _page(traits, static)


def _page(traits: dict[str, Any], static: Path) -> str:
    js = (static / "widget.js").read_text("utf-8")
    head, _, exported = js.rpartition("export{")
    name = exported.split(" as default")[0]
    return PAGE % {
        "css": (static / "widget.css").read_text("utf-8"),
        "js": f"{head}\nconst WIDGET = {name};",
        "data": json.dumps({"traits": traits, "answers": answers()}).replace("<", "\\u003c"),
    }


# Views are drawn in the next frames, and their clocks tick once a second.
SETTLE = """() => new Promise(resolve => {
  let timer = setTimeout(resolve, 100);
  new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(resolve, 100); })
    .observe(document.body, { subtree: true, childList: true, attributes: true });
})"""


def load(page: Page, html: str, theme: str) -> None:
    """Load `html` in a theme, with the slots open, and wait until it is drawn."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_content(html)
    variables = ";".join(f"{name}:{value}" for name, value in THEMES[theme].items())
    page.evaluate("style => document.documentElement.setAttribute('style', style)", variables)
    for section in page.query_selector_all(".det-cluster:not([hidden])"):
        section.evaluate("node => { node.open = true; }")
    page.evaluate(SETTLE)


def draw(page: Page, html: str, theme: str, target: Path) -> None:
    """Load `html` in a theme, and save its picture."""
    load(page, html, theme)
    page.screenshot(path=target, full_page=True)


def main(folder: Path, static: Path = STATIC_DIR, names: Sequence[str] = ()) -> None:
    """Draw all samples, or those named, live in both themes; also one or two static cards."""
    with chromium_page(1180, 900) as page:
        page.on("pageerror", lambda error: print("page error:", error))
        states = samples()
        shown = [name for name in names or states if name in states]
        for name, theme in product(shown, THEMES):
            draw(page, page_of(states[name], static), theme, folder / f"{name}-{theme}.png")
        for tab, theme, width in product(TABS, THEMES, WIDTHS):
            if names and tab not in names:
                continue
            page.set_viewport_size({"width": width, "height": 600})
            html = page_of(states["single"], static, tab)
            draw(page, html, theme, folder / f"tab-{tab}-{width}-{theme}.png")
        page.set_viewport_size({"width": 1180, "height": 900})
        body = '<!doctype html><body style="background:var(--jp-layout-color0);color:%s">'
        for name, theme in product(("search300", "waiting"), THEMES):
            card = body % "var(--jp-ui-font-color1)" + render_html(states[name])
            draw(page, card, theme, folder / f"card-{name}-{theme}.png")
        compared = comparison()
        for theme in THEMES:
            draw(
                page, page_of_comparison(compared, static), theme, folder / f"compare-{theme}.png"
            )
            card = body % "var(--jp-ui-font-color1)" + comparison_html(compared)
            draw(page, card, theme, folder / f"card-compare-{theme}.png")


if __name__ == "__main__":
    folder, *others = sys.argv[1:]
    main(Path(folder), Path(others[0]) if others else STATIC_DIR, others[1:])
