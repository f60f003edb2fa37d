"""Checks by the reported names whether validations have the searcher metric."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_VALIDATION = "validation"
_PHASES = {"val", "valid", "validation", "eval"}


class MetricNames:
    """The names of reported metrics, and whether validations report the searcher metric.

    A validation may be reported in parts, one for each of its data sets. It is complete when
    something of another step is reported.

    Args:
        metric: Name of the searcher metric.
    """

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._groups: dict[str, set[str]] = {}
        self._validated_at: int | None = None
        self._is_said = False

    def note_steps(self, steps_completed: int) -> str:
        """Return the problem of the last validation if that is complete now; "" if there is none.

        A problem is returned once.
        """
        if self._validated_at in (None, steps_completed):
            return ""
        return self._problem()

    def note(self, group: str, steps_completed: int, names: Iterable[str]) -> str:
        """Take a report; return what `note_steps` returns."""
        problem = self.note_steps(steps_completed)
        self._groups.setdefault(group, set()).update(names)
        if group == _VALIDATION:
            self._validated_at = steps_completed
        return problem

    def end(self, *, has_validated: bool) -> str:
        """Return the problem of a training that has ended; "" if there is none.

        Args:
            has_validated: Whether a validation may be missing here, since there was one before.
        """
        if _VALIDATION not in self._groups and (has_validated or not self._groups):
            return ""
        return self._problem()

    def _problem(self) -> str:
        validated = self._groups.get(_VALIDATION, set())
        if self._metric in validated or self._is_said:
            return ""
        self._is_said = True
        names = ", ".join(sorted(validated))
        found = f"validations have: {names}" if validated else "there is no validation"
        text = f"searcher.metric is {self._metric}, and {found}; so no checkpoint is the best one"
        group = next((name for name in self._groups if self._metric in self._groups[name]), None)
        if group is not None:
            return f"{text}. {self._metric} is reported in the group {group}"
        nearest = _nearest(self._metric, validated)
        return f"{text}. Did you mean {nearest}?" if nearest else text


def _nearest(metric: str, names: Iterable[str]) -> str:
    """Return the reported name that a metric probably stands for; "" if none is similar.

    >>> _nearest("val_loss", {"Loss", "acc"}), _nearest("accuracy", {"Accuracy/top1", "Loss"})
    ('Loss', 'Accuracy/top1')
    """
    plain = {_plain(name): name for name in sorted(names)}
    (near,) = get_close_matches(_plain(metric), plain, n=1) or [""]
    return plain.get(near, "")


def _plain(name: str) -> str:
    """Return a name without case, separators and the word for validation."""
    words = name.lower().replace("/", "_").split("_")
    return "_".join(words[1:] if len(words) > 1 and words[0] in _PHASES else words)
