"""A comparison as a notebook shows it: interactive, with the card and the text beside it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from det_jupyter.client import Comparison
from det_jupyter.notebook.handles.show import can_draw, front
from det_jupyter.view.build.results import Compared
from det_jupyter.view.forms.place import in_place


class NotebookComparison(Comparison):
    """A comparison that shows itself as a widget where there is a front end."""

    def __init__(self, compared: Sequence[Compared], notes: Sequence[str] = ()) -> None:
        super().__init__(compared, notes)
        self._key = f"comparison-{uuid.uuid4().hex}"
        self._widget: Any = None

    def _repr_mimebundle_(
        self, **kwargs: Any
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        forms = {"text/plain": repr(self), "text/html": in_place(self._key, self._repr_html_())}
        where = front()
        if self._widget is None and where in ("places", "outputs") and can_draw():
            from det_jupyter.notebook.handles.widget import ComparisonWidget

            self._widget = ComparisonWidget(self.state, self._key)
        if self._widget is None or where != "outputs":
            return forms
        live, metadata = self._widget._repr_mimebundle_()
        return {**live, **forms}, metadata
