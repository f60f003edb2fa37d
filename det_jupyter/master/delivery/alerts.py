"""Alerts: routed to the user's destinations and the experiment's own, and sent to each once.

    raised ──► routed: a row for each destination ──► sent, refused, or tried again for a day

After a failed attempt, the next ones follow 5 s, 20 s, 80 s later, and so on up to an hour; later
alerts to the same destination wait too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping

from det_jupyter.config.alerts import UserAlert, destinations
from det_jupyter.config.sections import Alert
from det_jupyter.contract.messages import AlertNews, AlertTested
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.master.delivery.alert_requests import FailedAttempt, send
from det_jupyter.master.delivery.outbox import Outbox
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.attempts import ALERTS
from det_jupyter.master.service.storing.stored_alerts import Destination, StoredAlert, make_news

logger = logging.getLogger(__name__)

Send = Callable[[Addresses, Destination, AlertNews], Awaitable[FailedAttempt | None]]
_PAUSE_S = 1.0  # between two alerts to one destination: Slack accepts one per second
_PERIOD_S = 60.0  # time is checked this often, as the clock may be set
_LAST_S = 2.0  # time for attempts under way when the master exits
GIVE_UP_S = 24 * 3600.0  # after an alert was raised
_MOST_ATTEMPTS = 40  # more than 24 hours of hourly attempts: the clock may be set


class Alerts:
    """The channel of alerts; its places are destinations, as `Destination.dump` returns them.

    Args:
        clock: Returns the present time, UTC seconds.
        send: Makes one attempt.
        pause_s: Seconds between two alerts to one destination.
    """

    def __init__(
        self,
        service: Service,
        *,
        clock: Callable[[], float] = time.time,
        send: Send = send,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._service = service
        self._rows = service.store.alerts
        self._addresses = service.store.addresses
        self._clock = clock
        self._send = send
        self._pause_s = pause_s
        # By alert: results of attempts that could not be stored yet. Such attempts are not
        # repeated.
        self._results: dict[int, FailedAttempt | None] = {}
        self.outbox = Outbox[str](
            self,
            service,
            clock=clock,
            period_s=_PERIOD_S,
            wake=service.alert_raised,
            last_s=_LAST_S,
        )

    async def find(self) -> None:
        """Route the alerts that were raised."""
        for alert in self._rows.raised():
            news = alert.news
            experiment = self._service.machine.state.experiments.get(news.experiment_id)
            found = self._destinations(news.event, experiment, news.pool)
            self._rows.route(alert.id, [destination.dump() for destination in found])

    def due_at(self) -> Mapping[str, float]:
        """Return when the oldest alert of each destination is due."""
        return self._rows.waiting()

    async def send(self, place: str) -> None:
        """Send the alerts that are due for a destination, oldest first, until one fails."""
        while self.outbox.has_turn(place):
            alert = self._rows.due(place, self._clock())
            if alert is None or not await self._send_one(alert):
                return
            await asyncio.sleep(self._pause_s)

    async def _send_one(self, alert: StoredAlert) -> bool:
        """Make an attempt, and record it; return whether the next alert may be sent."""
        assert alert.destination is not None
        number, label = alert.id, alert.label
        if number not in self._results:
            self._results[number] = await self._send(
                self._addresses, alert.destination, alert.news
            )
        failure = self._results[number]
        if failure is None:
            self._rows.set_sent(number)
            del self._results[number]
            logger.info("alert %d (%s) was sent: %s", number, alert.news.event, label)
            return True
        next_at = None
        if not failure.is_final:
            attempts, now = alert.attempts + 1, self._clock()
            next_at = next_attempt(alert.at, attempts, now, asked_s=failure.asked_s)
        self._rows.set_failed(number, failure.problem, next_at)
        del self._results[number]
        what = "is tried again" if next_at is not None else "is given up"
        logger.warning("alert %d to %s %s: %s", number, label, what, failure.problem)
        return next_at is None

    def _destinations(
        self, kind: AlertKind | None, experiment: Experiment | None, pool: str
    ) -> list[Destination]:
        """Return the destinations of an alert; without an experiment, all of alerts.yaml."""
        mine, theirs = self._addresses.alerts.content.alerts, list[UserAlert]()
        environment = None
        if experiment is not None:
            mine, theirs = destinations(kind, mine, _alerts_of(experiment), pool)
            environment = experiment.capsule.environment
        owners = [(each, None) for each in mine] + [(each, environment) for each in theirs]
        return [
            Destination(
                alert=alert.model_copy(update=self._addresses.hide_entry(dict(alert))),
                environment=variables,
            )
            for alert, variables in owners
        ]

    async def test(self, name: str | None, experiment_id: int | None) -> list[AlertTested]:
        """Send one test alert to each destination; return the results.

        Args:
            name: Send only to the destination of this name; None: to all destinations.
            experiment_id: Also send to the destinations of this experiment.

        Raises:
            NotFound: There is no such experiment or destination.
        """
        state = self._service.machine.state
        experiment = None if experiment_id is None else state.experiment(experiment_id)
        pool = "" if experiment is None else state.pool_of(experiment)
        found = self._destinations(None, experiment, pool)
        if name is not None:
            names = [each.alert.name for each in found if each.alert.name]
            found = [each for each in found if each.alert.name == name]
            if not found:
                raise NotFound(
                    f"there is no destination {name!r}; there are {', '.join(names) or 'none'}"
                )
        news = self._test_news(experiment)
        failures = await asyncio.gather(
            *(self._send(self._addresses, each, news) for each in found)
        )
        problems = [failure.problem if failure else "" for failure in failures]
        return [
            AlertTested(destination=each.label, problem=problem)
            for each, problem in zip(found, problems, strict=True)
        ]

    def _test_news(self, experiment: Experiment | None) -> AlertNews:
        at = self._clock()
        if experiment is not None:
            state = self._service.machine.state
            return make_news(state, AlertKind.ENDED, experiment.id, at=at, is_test=True)
        return AlertNews(
            id="test",
            event=AlertKind.ENDED,
            is_test=True,
            at=at,
            title="test of alerts",
            text=f"det_jupyter on {socket.gethostname()} can reach you here",
            experiment_id=0,
            name="",
            state="COMPLETED",
            computer=socket.gethostname(),
        )


def _alerts_of(experiment: Experiment) -> list[Alert]:
    """Return an experiment's own alerts; none if this version cannot parse its configuration."""
    try:
        return experiment.settings.alerts or []
    except ConfigError as error:  # of another version; the user's own alerts are sent nevertheless
        logger.warning("experiment %d: its own alerts cannot be read: %s", experiment.id, error)
        return []


def next_attempt(
    raised_at: float, attempts: int, now: float, *, asked_s: float = 0.0
) -> float | None:
    """Return when to repeat an attempt; None: never.

    Args:
        raised_at: When the alert was raised.
        attempts: Number of failed attempts.
        asked_s: Seconds that the receiver requests to wait.
    """
    at = now + ALERTS.pause_s(attempts, asked_s=asked_s)
    return None if attempts >= _MOST_ATTEMPTS or at > raised_at + GIVE_UP_S else at
