"""Sends the alerts of the outbox: to each destination one after the other, to all side by side.

    raised ──► routed to the user's destinations and the experiment's own ──► sent, or tried again

Nothing else waits for it. A destination that does not answer is tried after 5 s, 20 s, 80 s, and
so on up to an hour; the alerts behind it wait too. After 24 hours an alert is given up.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable

from det_jupyter.config.alerts import UserAlert, destinations
from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.contract.messages import AlertNews, AlertTested
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.errors import NotFound
from det_jupyter.master.background.alert_forms import next_attempt
from det_jupyter.master.background.alert_sending import Failure, send
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.service.addresses import Addresses
from det_jupyter.master.service.alert_outbox import Destination, Waiting, label_of, make_news
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

Send = Callable[[Addresses, Destination, AlertNews], Awaitable[Failure | None]]
_PAUSE_S = 1.0  # between two alerts to one destination: Slack accepts one a second
_AFTER_ERROR_S = 5.0  # of the database
_LONGEST_SLEEP_S = 60.0  # the clock may be set
_LAST_S = 2.0  # for attempts under way when the master exits
_MOST_AT_ONCE = 8


class Alerting:
    """Routes and sends alerts.

    Args:
        clock: Returns the present, in UTC seconds.
        send: Makes one attempt.
        pause_s: Between two alerts to one destination.
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
        self._outbox = service.store.alerts
        self._addresses = service.store.addresses
        self._clock = clock
        self._send = send
        self._pause_s = pause_s
        self._sending: dict[str, asyncio.Task[None]] = {}  # by destination
        # Of attempts that could not be recorded yet, by number: they are not made again.
        self._results: dict[int, Failure | None] = {}

    async def run(self) -> None:
        """Send alerts until cancelled; attempts under way get a moment to end."""
        wake = self._service.alert_raised
        try:
            while True:
                wake.clear()
                try:
                    sleep_s = self.start_due()
                except Exception:  # a full disk, for example; it is tried again
                    logger.exception("alerts could not be sent")
                    sleep_s = _LONGEST_SLEEP_S
                try:
                    async with asyncio.timeout(sleep_s):
                        await wake.wait()
                except TimeoutError:
                    pass
        finally:
            await self._end()

    def start_due(self) -> float:
        """Route what was raised, and send what is due; return the seconds until more is due."""
        for number, news in self._outbox.raised():
            found = self._route(news)
            self._outbox.route(number, [destination.dump() for destination in found])
        now, until = self._clock(), _LONGEST_SLEEP_S
        for destination, next_at in self._outbox.waiting().items():
            if destination in self._sending:
                continue
            if next_at > now:
                until = min(until, next_at - now)
            elif len(self._sending) < _MOST_AT_ONCE:  # when one ends, this is called again
                task = asyncio.create_task(self._send_all(destination))
                self._sending[destination] = task
        return until

    async def settle(self) -> None:
        """Wait until no attempt is under way."""
        while self._sending:
            await asyncio.wait(list(self._sending.values()))

    async def _end(self) -> None:
        tasks = list(self._sending.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_all(self, destination: str) -> None:
        """Send the alerts that are due for a destination, oldest first, until one fails."""
        try:
            while (waiting := self._outbox.due(destination, self._clock())) is not None:
                if not await self._send_one(waiting):
                    return
                await asyncio.sleep(self._pause_s)
        except Exception as error:
            if is_no_room(error):
                self._service.reserve.give_back()
            logger.exception("alerts could not be sent")
            await asyncio.sleep(_AFTER_ERROR_S)
        finally:
            del self._sending[destination]
            self._service.alert_raised.set()

    async def _send_one(self, waiting: Waiting) -> bool:
        """Make an attempt, and record it; return whether the next alert may be sent."""
        destination = Destination.load(waiting.destination)
        label, number = label_of(destination.alert), waiting.id
        if number not in self._results:
            self._results[number] = await self._send(self._addresses, destination, waiting.news)
        failure = self._results[number]
        if failure is None:
            self._outbox.set_sent(number)
            del self._results[number]
            logger.info("alert %d (%s) was sent: %s", number, waiting.news.event, label)
            return True
        next_at = None
        if not failure.is_final:
            attempts, now = waiting.attempts + 1, self._clock()
            next_at = next_attempt(waiting.at, attempts, now, asked_s=failure.asked_s)
        self._outbox.set_failed(number, failure.problem, next_at)
        del self._results[number]
        what = "is tried again" if next_at is not None else "is given up"
        logger.warning("alert %d to %s %s: %s", number, label, what, failure.problem)
        return next_at is None

    def _route(self, news: AlertNews) -> list[Destination]:
        experiment = self._service.machine.state.experiments.get(news.experiment_id)
        return self._destinations(news.event, experiment, news.pool)

    def _destinations(
        self, kind: AlertKind | None, experiment: Experiment | None, pool: str
    ) -> list[Destination]:
        """Return where alerts go; without an experiment, the user's destinations of all pools."""
        mine, theirs = self._addresses.file.content.alerts, list[UserAlert]()
        environment = None
        if experiment is not None:
            mine, theirs = destinations(kind, mine, experiment.settings.alerts or [], pool)
            environment = experiment.capsule.environment
        hidden = self._addresses.hidden_alert
        return [
            *(Destination(alert=hidden(each), environment=None) for each in mine),
            *(Destination(alert=hidden(each), environment=environment) for each in theirs),
        ]

    async def test(self, name: str | None, experiment_id: int | None) -> list[AlertTested]:
        """Send a test to the destinations, once; return what became of it.

        Args:
            name: Only to the destination of this name.
            experiment_id: To those of an experiment; None: to those of all.

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
            AlertTested(destination=label_of(each.alert), problem=problem)
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
