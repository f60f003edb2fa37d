"""`det e export-html`: the view of an experiment in one HTML file.

The file has the widget's code, the view's state and answers to what its tabs ask for
(labextension/src/page.ts). It needs no program but a browser, and no network: a content security
policy forbids it. Data are in a JSON element in which no tag can begin, so nothing that an
experiment's name or a log contains is run. Without scripts, the static card is shown.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, Literal, cast

from det_jupyter._version import __version__
from det_jupyter.client import Client
from det_jupyter.client.answers.answering import checkpoints_answer
from det_jupyter.client.handle_text import ranked
from det_jupyter.client.sharing.known_secrets import known_secrets
from det_jupyter.client.sharing.new_file import replacing
from det_jupyter.config import to_yaml
from det_jupyter.contract.documents.patches import changes
from det_jupyter.contract.messages import (
    ConfigText,
    ExperimentView,
    LogQuery,
    SeriesQuery,
)
from det_jupyter.contract.values.redacting import Redactor
from det_jupyter.contract.values.variables import without_values
from det_jupyter.errors import DetError
from det_jupyter.view import ViewState
from det_jupyter.view.forms.card import render_html

_STATIC = Path(__file__).parents[1] / "notebook" / "static"
_NUM_TRIALS = 20  # trials of a search that have details and series
_NUM_LINES = 5000
_LONGEST_LINE = 1000
_COLUMNS = 400
# What the tabs ask for: kind, axis and number of points.
_SERIES: tuple[
    tuple[Literal["metrics", "timings", "system"], Literal["time", "batches"], int], ...
] = (
    ("metrics", "time", _COLUMNS),
    ("metrics", "batches", _COLUMNS),
    ("timings", "time", _COLUMNS),
    ("timings", "batches", _COLUMNS),
    ("timings", "time", 1),
    ("timings", "batches", 1),
    ("system", "time", _COLUMNS),
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data: blob:; \
script-src 'nonce-{nonce}' blob:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 1200px; margin: 12px auto; padding: 0 12px; background: Canvas;
  color: CanvasText; font: 13px/1.45 system-ui, sans-serif; }}
footer {{ margin: 8px 4px; opacity: 0.75; font-size: 12px; }}
{style}
.det-bell {{ display: none; }}  /* a file cannot notify */
</style>
</head>
<body>
<main id="det-page"></main>
<noscript>{card}</noscript>
<footer>Experiment {id} of det_jupyter {version}, as a file: it shows what was, and cannot change \
anything.{note}</footer>
<script type="application/json" id="det-data">{data}</script>
<script type="module" nonce="{nonce}">{script}</script>
</body>
</html>
"""


def write_page(client: Client, experiment_id: int, file: str | Path) -> Path:
    """Write the view of an experiment to an HTML file, replacing it; return its path.

    Raises:
        DetError: The front end is not built, or the file cannot be written.
    """
    path = Path(file).expanduser()
    with replacing(path) as stream:
        stream.write(make_page(client, experiment_id).encode())
    return path


def make_page(client: Client, experiment_id: int) -> str:
    """Return the view of an experiment as HTML, without secrets."""
    view = client.experiment(experiment_id)
    redactor = Redactor(known_secrets(client, view))
    data = _data(client, view, redactor)
    more = len(view.trials) - _NUM_TRIALS
    return _PAGE.format(
        nonce=secrets.token_urlsafe(16),
        title=escape(data["state"]["name"]),
        style=_static("widget.css").replace("</style", "<\\/style"),
        card=render_html(cast(ViewState, data["state"])),
        id=view.id,
        version=__version__,
        note=f" Details are those of the best {_NUM_TRIALS} trials." if more > 0 else "",
        data=json.dumps(data).replace("<", "\\u003c"),
        script=_static("page.js").replace("</script", "<\\/script"),
    )


def _static(name: str) -> str:
    try:
        return (_STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DetError(
            f"{_STATIC / name} is missing: the front end was not built with this installation; "
            "install a wheel, or run `make setup` in a checkout"
        ) from None


def _data(client: Client, view: ExperimentView, redactor: Redactor) -> dict[str, Any]:
    """Return what labextension/src/pageanswers.ts reads."""

    def state_with(chosen: int | None) -> dict[str, Any]:
        fetched = client.document("experiment", experiment_id=view.id, chosen=chosen).fetch()
        state: dict[str, Any] = redactor.strings(fetched)
        return state | {"actions": [], "cluster": None}

    state = state_with(None)
    trials = [trial.id for trial in ranked(view)[:_NUM_TRIALS]]
    chosen = trials if state["search"] is not None else []
    return {
        "state": state,
        "chosen": {trial_id: changes(state, state_with(trial_id)) for trial_id in chosen},
        "tabs": {"text": _static("tabs.js")},
        "config": redactor.strings(_config(client, view)),
        "checkpoints": redactor.strings(checkpoints_answer(client, view.id, {}).model_dump()),
        "logs": _lines(client, view, redactor),
        "series": dict(_series(client, trials)),
        "widget": _static("widget.js"),
    }


def _config(client: Client, view: ExperimentView) -> dict[str, Any]:
    """Return the configuration without values of environment variables."""
    found = client.effective_config(view.id)
    text = to_yaml(without_values(found.config), found.origins)
    return ConfigText.built_from(found, yaml=text).model_dump()


def _lines(client: Client, view: ExperimentView, redactor: Redactor) -> list[dict[str, Any]]:
    page = client.experiment_logs(view.id, LogQuery(tail=_NUM_LINES))
    return [
        line.model_dump() | {"text": redactor.text(line.text)[:_LONGEST_LINE]}
        for line in page.lines
    ]


def _series(client: Client, trials: list[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    for trial_id, (of, axis, columns) in product(trials, _SERIES):
        page = client.series(trial_id, SeriesQuery(of=of, axis=axis, columns=columns))
        width = "one" if columns == 1 else "all"
        yield f"{trial_id} {of} {axis} {width}", page.model_dump()
