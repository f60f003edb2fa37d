"""Why an experiment waits, as lines for a terminal: each reason once. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from det_jupyter.contract.messages import ExperimentView, Reason
from det_jupyter.contract.values.text import named, one_line
from det_jupyter.view.build.facts import trial_status

_HOLDING = ("starting", "running")


class WaitingNews:
    """Remembers the last reason, so that it is printed once."""

    def __init__(self) -> None:
        self._told: Hashable = None

    def line(self, experiment: ExperimentView, reasons: Mapping[int, Reason]) -> str:
        """Return why no trial of the experiment runs, as a line; empty if that is no news."""
        reason = self.reason(experiment, reasons)
        if reason is None:
            return ""
        name = one_line(named(experiment.id, experiment.name))
        return f"{name}: trial {reason.trial_id} waits: {one_line(reason.sentence)}"

    def reason(self, experiment: ExperimentView, reasons: Mapping[int, Reason]) -> Reason | None:
        """Return the first of the reasons why its trials wait, if none runs and that is news."""
        states = {t.id: trial_status(t, experiment.state) for t in experiment.trials}
        waiting = [
            reason
            for id, reason in reasons.items()
            if states.get(id) == "queued" and not _is_of_its_own(reason, experiment.id)
        ]
        if not waiting or any(state in _HOLDING for state in states.values()):
            self._told = None
            return None
        [reason, *_] = waiting
        if _gist(reason) == self._told:
            return None
        self._told = _gist(reason)
        return reason


def _is_of_its_own(reason: Reason, experiment_id: int) -> bool:
    """Return whether a trial waits for trials of its own experiment alone, as in each search."""
    owners = {holder.experiment_id for holder in reason.holders}
    return owners == {experiment_id} and not (reason.ahead or reason.processes)


def _gist(reason: Reason) -> Hashable:
    """Return what distinguishes reasons: neither estimates nor positions in the queue."""
    return (
        reason.cause,
        reason.slots,
        tuple((holder.experiment_id, holder.is_leaving) for holder in reason.holders),
        tuple(process.pid for process in reason.processes),
        tuple(reason.ahead),
    )
