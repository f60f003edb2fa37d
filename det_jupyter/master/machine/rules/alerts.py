"""Alerts: messages to the configured addresses, each raised once.

    FAILED, ENDED    end_experiment               again if the experiment is continued and ends
    NAN              the first trial that diverges, or reports an alarm
    HANG, DISK       raised by the rule that detects it; withdrawn when it is over (`withdraw`), so
                     that the next one is raised again

They are stored in the transaction of the event: an alert is stored if and only if the event is.
Experiments whose submitting program reports their end raise no alerts.
"""

from __future__ import annotations

from det_jupyter.contract.messages import State
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import RaisedAlert, Turn

_KIND_OF_END = {State.ERROR: AlertKind.FAILED, State.COMPLETED: AlertKind.ENDED}


def raise_alert(
    turn: Turn, kind: AlertKind, experiment: Experiment, text: str, trial: Trial | None = None
) -> None:
    """Raise an alert, unless one of this kind was raised for the experiment and not withdrawn.

    Args:
        text: What has happened, as a sentence.
        trial: The trial that it is about, if it is about one.
    """
    if experiment.is_quiet or kind in experiment.alerted:
        return
    experiment.alerted.append(kind)
    turn.touch(experiment)
    turn.changes.alerts.append(
        RaisedAlert(
            kind=kind,
            experiment_id=experiment.id,
            trial_id=None if trial is None else trial.id,
            text=text,
        )
    )


def raise_end(turn: Turn, experiment: Experiment) -> None:
    """Raise the alert of an experiment's end, unless a user has canceled the experiment."""
    if (kind := _KIND_OF_END.get(experiment.state)) is not None:
        raise_alert(turn, kind, experiment, experiment.message)


def withdraw(experiment: Experiment, *kinds: AlertKind) -> None:
    """Allow alerts of these kinds to be raised again; of all kinds if none is given."""
    experiment.alerted = [kind for kind in experiment.alerted if kinds and kind not in kinds]
