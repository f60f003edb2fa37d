"""A comparison as a notebook shows it: interactive, with the card and the text beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from det_jupyter.client import Comparison
from det_jupyter.notebook.handles.show import comparison_widget, has_widgets
from det_jupyter.view.build.side_by_side import Compared


class NotebookComparison(Comparison):
    """A comparison that shows itself as a widget where there is a front end."""

    def __init__(self, compared: Sequence[Compared], notes: Sequence[str] = ()) -> None:
        super().__init__(compared, notes)
        self._widget: Any = None

    def _repr_mimebundle_(
        self, **kwargs: Any
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        forms = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if self._widget is None and has_widgets():
            self._widget = comparison_widget(self.state)
        live = None if self._widget is None else self._widget._repr_mimebundle_()
        return forms if live is None else ({**live[0], **forms}, live[1])
