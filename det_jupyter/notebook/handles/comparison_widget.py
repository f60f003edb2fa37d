"""A comparison as an anywidget; imported only when one is shown, as ipywidgets takes its time."""

from __future__ import annotations

from pathlib import Path

import traitlets

from det_jupyter.notebook.handles.widget import PageWidget
from det_jupyter.view.model.comparison import ComparisonState


class ComparisonWidget(PageWidget):
    """Shows a `ComparisonState`; `settings` are the reader's choices, such as the x axis."""

    comparison = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, state: ComparisonState, key: str, *, esm: Path, css: Path) -> None:
        super().__init__(esm, css, key=key, comparison=state)
