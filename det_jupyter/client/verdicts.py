"""What limits a trial, as something that shows itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.view.build.trial import build_verdict
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


def shown_verdict(verdict: Verdict | None, config: Mapping[str, Any]) -> ShownVerdict:
    """Return a verdict that shows itself; without one, why there is none.

    Args:
        verdict: Of the trial, if there is one.
        config: Of its experiment.
    """
    if verdict is not None:
        return ShownVerdict(**dict(verdict))
    is_off = (config.get("profiling") or {}).get("enabled") is False
    sentence = (
        "Not measured: profiling.enabled is false."
        if is_off
        else "Not enough seen yet: no times of its ranks."
    )
    return ShownVerdict(kind="unknown", sentence=sentence, at=0.0, batches=0)
