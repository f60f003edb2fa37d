"""The verb that waits for the end of an experiment."""

from __future__ import annotations

from det_jupyter.client.client import Client
from det_jupyter.client.follow import Follower
from det_jupyter.errors import Conflict
from det_jupyter.verbs.experiments import describe_state, title
from det_jupyter.verbs.grammar import Call
from det_jupyter.wire import ExperimentView, State

_TICK_S = 0.2


def wait(call: Call) -> str:
    """Wait until an experiment has ended.

    Raises:
        Conflict: It ended otherwise than completed.
    """
    call.client.experiment(call.options.id)  # is there one?
    return ended(until_over(call.client, call.options.id))


def until_over(client: Client, experiment_id: int) -> ExperimentView:
    """Return an experiment when it has ended; a paused one is waited for too."""
    follower = Follower(client, experiment_id).start()
    try:
        while follower.thread.is_alive():
            follower.thread.join(_TICK_S)
    finally:
        follower.stop()
    if follower.error is not None:
        raise follower.error
    return client.experiment(experiment_id)


def ended(view: ExperimentView) -> str:
    """Return how an experiment ended.

    Raises:
        Conflict: It ended otherwise than completed.
    """
    said = f"{title(view)}: {describe_state(view)}"
    if view.state is not State.COMPLETED:
        raise Conflict(said)
    return said
