"""What the buttons of a view do: a verb, or a remedy by its id."""

from __future__ import annotations

from collections.abc import Iterable

from det_jupyter.client import Client
from det_jupyter.client.reasons import carry_out
from det_jupyter.contract.messages import LIFE, Reason
from det_jupyter.errors import Conflict
from det_jupyter.view.model.states import VERBS


def carry_out_command(
    client: Client, experiment_id: int, command: str, reasons: Iterable[Reason]
) -> None:
    """Carry out a button of an experiment whose trials wait for these reasons.

    Raises:
        Conflict: It is a remedy that is not offered any more.
    """
    if command in VERBS:
        client.change(LIFE[command](experiment_id=experiment_id))
        return
    for reason in reasons:
        for remedy in reason.remedies:
            if remedy.id == command:
                carry_out(client, remedy)
                return
    raise Conflict("the queue has changed meanwhile, and this would no longer start the trial")
