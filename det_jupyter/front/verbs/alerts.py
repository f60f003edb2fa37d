"""Verbs about alerts: lists destinations and the latest alerts, and sends a test."""

from __future__ import annotations

from det_jupyter.contract.messages import AlertDestination
from det_jupyter.contract.values.text import count, date
from det_jupyter.errors import DetError
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, form_of, is_arranged, render


def list_alerts(call: Call) -> str:
    """Return a row for each of the latest alerts; below, the destinations."""
    view = call.client.alerts()
    listing = Listing(
        header=("ID", "Raised", "Event", "Experiment", "Destination", "State", "Attempts",
                "Next Attempt", "Problem"),
        rows=[
            (
                each.id,
                date(each.at),
                each.event,
                each.experiment_id,
                each.destination,
                each.state,
                each.attempts,
                None if each.next_at is None else date(each.next_at),
                each.problem,
            )
            for each in view.deliveries
        ],
        if_empty="No alerts yet.",
    )  # fmt: skip
    table = render(listing, call.options)
    if form_of(call.options) or is_arranged(call.options):
        return table
    lines = [f"not followed: {problem}" for problem in view.problems]
    lines += [_describe(each) for each in view.destinations]
    if not lines:
        lines = [f"Alerts go nowhere: {view.file} does not name a destination."]
    return "\n".join([table, "", *lines])


def _describe(destination: AlertDestination) -> str:
    on = "everything" if destination.on is None else ", ".join(destination.on) or "nothing"
    whose = (
        "all" if destination.experiment_id is None else f"experiment {destination.experiment_id}"
    )
    pools = f" in {', '.join(destination.pools)}" if destination.pools is not None else ""
    what = " ".join(filter(None, (destination.name, destination.way, destination.address)))
    return f"{what}: {on}, of {whose}{pools}"


def test_alerts(call: Call) -> str:
    """Send a test to the destinations; return a line for each.

    Raises:
        DetError: There is no destination, or one could not be reached.
    """
    tested = call.client.test_alerts(call.options.name, call.options.experiment)
    if not tested:
        raise DetError(
            f"alerts go nowhere: name a destination in {call.client.alerts().file}, or in the "
            "configuration of an experiment"
        )
    lines = [f"{each.destination}: {each.problem or 'sent'}" for each in tested]
    if failed := sum(bool(each.problem) for each in tested):
        raise DetError("\n".join([*lines, f"{count(failed, 'test')} failed"]))
    return "\n".join(lines)
