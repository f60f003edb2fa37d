"""A comparison as an anywidget; imported only when one is shown, as ipywidgets takes its time."""

from __future__ import annotations

from pathlib import Path

import traitlets
from anywidget import AnyWidget

from det_jupyter.view.model.comparison import ComparisonState


class ComparisonWidget(AnyWidget):
    """Shows a `ComparisonState`; `settings` are the reader's choices, such as the x axis."""

    comparison = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, state: ComparisonState, *, esm: Path, css: Path) -> None:
        self._esm = esm.read_text(encoding="utf-8")
        self._css = css.read_text(encoding="utf-8")
        super().__init__(comparison=state)
