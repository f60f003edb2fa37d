"""Routes for alerts: their destinations, the last deliveries, and a test."""

from __future__ import annotations

from fastapi import APIRouter, Response

from det_jupyter.config.sections import Alert
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    AlertDelivery,
    AlertDestination,
    AlertsView,
    AlertTested,
    TryAlerts,
)
from det_jupyter.contract.values.addresses import shown
from det_jupyter.master.delivery.alerts import Alerts
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.stored_alerts import StoredAlert
from det_jupyter.master.service.storing.stored_rows import readable

_SHOWN = 100  # most deliveries in an answer


def alert_routes(service: Service, sent: Alerts) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/alerts", response_model=AlertsView)
    async def alerts() -> Response:
        """Return the destinations of alerts and the last deliveries; addresses without secrets."""
        addresses = service.store.addresses
        found = [_view(alert, None) for alert in addresses.alerts.content.alerts]
        for experiment in service.machine.state.unfinished_experiments():
            own = experiment.config.get("alerts") and experiment.settings.alerts
            found += [_view(alert, experiment.id) for alert in own or ()]
        return JsonResponse(
            AlertsView(
                file=str(paths.alerts_file()),
                problems=addresses.alerts.problems,
                destinations=found,
                deliveries=list(readable(service.store.alerts.deliveries(_SHOWN), _delivery)),
            )
        )

    @routes.post("/alerts/test", response_model=list[AlertTested])
    async def test(body: TryAlerts) -> Response:
        """Send one test alert to each destination; return the results."""
        return JsonResponse(await sent.test(body.name, body.experiment_id))

    return routes


def _delivery(alert: StoredAlert) -> AlertDelivery:
    return AlertDelivery.built_from(
        alert,
        event=alert.news.event,
        experiment_id=alert.news.experiment_id,
        destination=alert.label,
        next_at=alert.next_at if alert.state == "waiting" else None,
    )


def _view(alert: Alert, experiment_id: int | None) -> AlertDestination:
    value = getattr(alert, alert.way) if alert.way else ""
    return AlertDestination(
        name=alert.name or "",
        way=alert.way,
        address=value[0] if alert.way == "command" else shown(value) if value else "",
        on=None if alert.on is None else list(alert.on),
        pools=getattr(alert, "pools", None),
        experiment_id=experiment_id,
    )
