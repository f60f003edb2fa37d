"""Runs that a user has started by hand: the request that begins one, and the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from det_jupyter.contract.messages.change_request import ChangeRequest
from det_jupyter.contract.messages.gang_specs import GangPlan
from det_jupyter.contract.messages.reports import RankProcess
from det_jupyter.contract.messages.requests import Key, Submission
from det_jupyter.contract.messages.views import SlotView
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import PrintableText, Timestamp

UNMANAGED = "unmanaged"  # the label of such experiments; stands for the code, which is not stored


class UnmanagedStart(Wire):
    """The answer to StartUnmanaged.

    Args:
        experiment_id: The experiment that has the run.
        plan: The run's plan; None: the run is over.
        is_cut: Whether it is over as it was silent, so the rest of its reports is not stored.
    """

    experiment_id: int
    plan: GangPlan | None
    is_cut: bool = False


class StartUnmanaged(ChangeRequest, Submission):
    """Begin a run whose processes a user has started; nothing is scheduled.

    The newest unmanaged experiment with the name in `config` goes on; if there is none, this makes
    one. Reports of the run follow at `/unmanaged/{allocation_id}/reports`.

    Args:
        key: Identifies the run: a repeated request begins no second one.
        resume: Whether an experiment goes on; else a new one is made in any case.
        begun_from: Of a run that is over: the uuid of the checkpoint from which it has begun, or
            "" for none. The experiment goes on only if that is its latest one.
        started_at: When the run has begun.
        host: Name of the computer.
        slots: For each rank its device, with the id -1.
        ranks: The processes of the ranks on that computer.
    """

    path = "/experiments/unmanaged"
    answer = UnmanagedStart
    kind: Literal["start_unmanaged"] = "start_unmanaged"
    key: Annotated[Key, Field(min_length=1)]
    resume: bool = True
    begun_from: str | None = None
    started_at: Timestamp
    host: PrintableText
    slots: Annotated[list[SlotView], Field(min_length=1)]
    ranks: list[RankProcess]
