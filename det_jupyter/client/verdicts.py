"""What limits a trial, as something that shows itself."""

from __future__ import annotations

from det_jupyter.view.build.verdict import build_verdict
from det_jupyter.view.forms.verdict import verdict_html, verdict_lines
from det_jupyter.wire import Verdict


class ShownVerdict(Verdict):
    """A verdict that prints itself; its fields have it as data."""

    def __repr__(self) -> str:
        return "\n".join(verdict_lines(build_verdict(self)))

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return verdict_html(build_verdict(self))


def shown_verdict(verdict: Verdict | None) -> ShownVerdict:
    """Return a verdict that shows itself; without one, that nothing was measured yet."""
    if verdict is None:
        sentence = "Not enough seen yet: no times of its ranks."
        return ShownVerdict(kind="unknown", sentence=sentence, at=0.0, batches=0)
    return ShownVerdict(**dict(verdict))
