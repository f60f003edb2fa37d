"""Messages about trackers: services that experiments are sent to, and the process that sends."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.contract.values.text import count, date

COUNTED = 10_000  # records that wait are counted up to this many
MOST_OF_PROBLEM = 1000  # characters


class TrackerState(Wire):
    """How much of an experiment was sent to one tracker."""

    id: int
    label: str  # its name, or its type and place; without secrets
    behind: int = 0  # records of metrics that were not sent; COUNTED: that many, or more
    seq: int = 0  # number of the last item of the feed that it has
    last_seq: int = 0  # number of the experiment's last item
    since: float | None = None  # when the oldest of them was reported; UTC seconds
    problem: str = ""  # why the last attempt failed
    remark: str = ""  # another notice for users
    next_at: float | None = None  # of the next attempt, after one that failed

    @property
    def is_current(self) -> bool:
        """Whether the tracker has all that was reported."""
        return not self.behind and not self.problem

    def has(self, seq: int) -> bool:
        """Return whether the tracker has received the experiment's feed up to this item."""
        return not self.problem and self.seq >= min(seq, self.last_seq)

    @property
    def sentence(self) -> str:
        """The state in words, without a full stop."""
        if self.is_current:
            return f"{self.label}: {'; '.join(filter(None, ('caught up', self.remark)))}"
        more = " or more" if self.behind >= COUNTED else ""
        since = "" if self.since is None else f" since {date(self.since)}"
        waiting = f"{count(self.behind, 'record')}{more} behind{since}" if self.behind else ""
        why = f"{self.problem}; it is tried again" if self.problem else ""
        return f"{self.label}: {'; '.join(filter(None, (waiting, why)))}"


class TrackerWork(Wire):
    """An experiment that was not sent completely to a tracker yet."""

    id: int
    experiment_id: int
    key: str  # unique for this experiment and tracker
    seq: int  # number of the last item of the feed that was sent
    runs: dict[int, dict[str, Any]]  # what the process has stored of each trial


class TrackerProgress(Wire):
    """How much of an experiment a tracker has received, or why sending failed."""

    seq: Whole | None = None  # number of the last item of the feed that it has; None: unchanged
    after: Whole | None = None  # that number before; if it is another one now, `seq` is void
    runs: dict[int, dict[str, Any]] = {}  # what is to be stored of these trials
    problem: Annotated[str, Field(max_length=MOST_OF_PROBLEM)] = ""
    remark: Annotated[str, Field(max_length=MOST_OF_PROBLEM)] = ""
    is_unreachable: bool = False  # whether the problem is the tracker's with all experiments


class TrackerOrder(Wire):
    """What the process of a tracker reads from its standard input, as one line. It has secrets."""

    group: str  # identifies its work in requests to the master
    tracker: dict[str, Any]  # a Tracker of the configuration, without references
    folder: str  # for files of its own
    credentials: dict[str, str]  # variables that its library reads
    gets_credentials: bool  # whether the library also finds those in the user's files
    is_named: bool = True  # whether the user has chosen the address; then any host is allowed


class ModelOrder(Wire):
    """What the process that registers a version in MLflow reads. It may have secrets."""

    tracking_uri: str
    is_named: bool  # whether the user has chosen the address beside the credentials
    secrets: list[str]  # credentials of its environment, which no message may contain
    name: str  # of the model in MLflow
    folder: str  # what is stored
    has_checkpoint: bool  # whether `load_checkpoint` reads the folder's `checkpoint`
    facts: dict[str, Any]  # model.json


class SendTo(Wire):
    """A request to send an experiment to trackers: again, or for the first time."""

    # A Tracker of the configuration; None: those of the experiment, and of trackers.yaml.
    tracker: dict[str, Any] | None = None
    name: str | None = None  # only the one of this name
    is_over: bool = False  # instead, stop sending the experiment there
    variables: dict[str, str] = {}  # of the user's process: those that MLflow's library reads
