"""When the points of a curve were measured, in seconds since the first report of its trial. Pure.

The ranks report many batches at once, so that many points have the time of one report. They are
spread evenly between that report and the one before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from det_jupyter.wire import Curve
from det_jupyter.wire import steps_per_epoch as reported_epochs

NO_EPOCHS: Mapping[int, float] = MappingProxyType({})


class Pace:
    """The clock of each trial of some curves, and the length of its epochs.

    Args:
        curves: All that are drawn together.
        steps_per_epoch: What the configuration says. Where it says nothing, the reports count:
            the batches of a whole epoch, while in truth one epoch may have a batch more.
    """

    def __init__(self, curves: Sequence[Curve], steps_per_epoch: Mapping[int, float]) -> None:
        self.steps_per_epoch = {**reported_epochs(curves), **steps_per_epoch}
        self._starts: dict[int, float] = {}
        for curve in curves:
            if curve.times:
                first = measured_at(curve.times, 0)
                self._starts[curve.trial_id] = min(first, self._starts.get(curve.trial_id, first))

    def seconds(self, curve: Curve, places: Iterable[int]) -> list[float]:
        """Return the times of some points since the trial's first, to the hundredth."""
        start = self._starts.get(curve.trial_id, 0.0)
        return [round(max(0.0, measured_at(curve.times, i) - start), 2) for i in places]


def measured_at(times: Sequence[float], place: int) -> float:
    """Return when a point was measured, of points whose reports came at these times.

    >>> [measured_at([10.0, 10.0, 12.0, 12.0], place) for place in range(4)]
    [9.0, 10.0, 11.0, 12.0]
    """
    time = times[place]
    first, end = bisect_left(times, time), bisect_right(times, time)
    if first > 0:
        stride = (time - times[first - 1]) / (end - first)
    elif end < len(times):  # the first report had the pace of the second
        stride = (times[end] - time) / (bisect_right(times, times[end]) - end)
    else:
        stride = 0.0
    return time - stride * (end - 1 - place)
