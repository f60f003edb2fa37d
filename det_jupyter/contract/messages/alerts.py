"""Messages about alerts: their content, their destinations, and the results of sending."""

from __future__ import annotations

from typing import Literal

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.errors import Problem


class AlertNews(Wire):
    """An alert, as a webhook or a command gets it; a repeated delivery has the same `id`."""

    id: str
    event: AlertKind
    is_test: bool = False
    at: float  # UTC seconds
    title: str  # in a line: which experiment, and what
    text: str  # what has happened, as a sentence; "": the title is enough
    experiment_id: int
    name: str  # of the experiment
    state: str
    trial_id: int | None = None  # the trial that it is about
    num_trials: int = 0
    metric: str = ""
    best_metric: float | None = None
    pool: str = ""
    computer: str = ""  # of the master


class AlertDestination(Wire):
    """A destination of alerts. Its address is shown without secrets."""

    name: str
    way: str  # slack, ntfy, webhook, command
    address: str
    on: list[str] | None  # None: everything
    pools: list[str] | None = None  # None: all
    experiment_id: int | None = None  # the experiment that configures it; None: it is for all


class AlertDelivery(Wire):
    """An alert to one destination."""

    id: int
    event: AlertKind
    experiment_id: int
    at: float  # when it was raised
    destination: str
    state: Literal["waiting", "sent", "failed"]
    attempts: int
    next_at: float | None = None  # of the next attempt
    problem: str = ""  # of the last attempt


class AlertsView(Wire):
    """The destinations of alerts, and the latest deliveries."""

    file: str  # the user's alerts.yaml
    problems: list[Problem]  # of that file
    destinations: list[AlertDestination]
    deliveries: list[AlertDelivery]  # newest first


class TryAlerts(Wire):
    """A request to send a test."""

    name: str | None = None  # only to the destination of this name
    experiment_id: Whole | None = None  # to those of this experiment; else to those of all


class AlertTested(Wire):
    """The result of a test at one destination."""

    destination: str
    problem: str  # "": it was sent
