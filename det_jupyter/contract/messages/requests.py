"""Submissions with their captured code, other requests of clients, and answers to them.

Requests that change what the master has stored are in changes.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import (
    Count,
    PrintableText,
    Rank,
    StrictWhole,
    Timestamp,
    Whole,
)
from det_jupyter.errors import Problem


class CapturedName(Wire):
    """A name of the notebook that was captured with the trial."""

    name: str
    cell: str = ""  # where it was defined: "In [5]" or a file name; "" if unknown
    type: str
    size_bytes: int


class ContextRef(Wire):
    """A context directory, of which each run gets a copy to work in."""

    blob: str  # digest of its tar file; equal files give an equal digest
    num_files: int  # number of files
    size_bytes: int  # bytes of all files together


class Capsule(Wire):
    """A trial that was captured in a notebook: digests of blobs, and facts to show."""

    # Name of the class or function, as the configuration gives it; of a command, its text.
    entrypoint: str
    # Blob with the pickle stream (protocol 5, cloudpickle by value); "" if the entrypoint is in a
    # module, or a command.
    payload: str = ""
    buffers: list[str] = []  # blobs with the stream's out-of-band buffers, in order
    sources: str  # blob with JSON `{filename: {"label": "Cell In[5]", "source": "..."}}`
    # The blobs of the files of local modules, by path relative to their import root.
    modules: dict[str, str] = {}
    captured: list[CapturedName] = []  # what the stream contains, to be shown
    packages: dict[str, str] = {}  # versions of Python and of the imported distributions, by name
    # The context directory; None: ranks work in the notebook's folder itself.
    context: ContextRef | None = None
    # Blob with JSON `{"salt": ..., "values": {name: value}, "alerts": {...}}`: variables of
    # which the configuration has only the names; those of ranks, and those with addresses of
    # alerts. Their values are stored nowhere else and never shown.
    environment: str | None = None
    umask: Annotated[int, Field(ge=0, le=0o777)] | None = None  # of the process that submits it
    notices: list[str] = []  # for the user: that a CUDA tensor was copied to the CPU, for example
    plain_trainer: str = ""  # the trainer that the function's source calls without DetCallback

    @property
    def has_code(self) -> bool:
        """Whether it contains the code, and not only its name."""
        return bool(self.payload or self.modules or self.context)


class CodeView(Wire):
    """The source of a trial: cells by label ("Cell In[5]"), modules and context files by path."""

    files: dict[str, str]


Key = Annotated[str, Field(max_length=64)]
MAX_IMPORTED_LINE = 200_000  # characters; the open line of several progress bars has rows


class Submission(Wire):
    """The fields of an experiment that come from its submission."""

    config: dict[str, Any]  # in a request as the user wrote it; in views the effective one
    capsule: Capsule
    python: str  # interpreter of the ranks
    cwd: str  # the notebook's folder: working directory of the ranks
    notebook: str | None = None
    template: str | None = None  # name of the template that `config` is laid over
    parent_id: Whole | None = None  # the experiment that this one is a fork of


class CreateExperiment(Submission):
    """A request to run an experiment.

    Repeating it with the same key creates no second experiment.
    """

    queue_anyway: bool = False  # accept it even if no pool has enough slots now
    is_paused: bool = False  # holds no slots until it is activated
    is_quiet: bool = False  # no notification at its end: the client waits for it and reports it
    is_temporary: bool = False  # deleted after its end, if the client has not done it
    key: Key = ""  # chosen by the client, new for each submission; "": not repeatable


class Refusal(Wire):
    """Body of every 4xx answer."""

    error: str  # name of a class in det_jupyter.errors
    problems: list[Problem]
    # If an experiment or trial of the requested number does not exist: which kind, and the number.
    what: Literal["", "experiment", "trial"] = ""
    number: int = 0


class SetTemplate(Wire):
    """A request to store a template under its name; it replaces one of that name."""

    config: dict[str, Any]


class TemplateView(Wire):
    """A template: a part of a configuration, over which configurations are merged."""

    name: str
    config: dict[str, Any]
    created_at: float
    updated_at: float


class ConfigText(Wire):
    """An experiment's whole configuration as text."""

    yaml: str  # with the origin of each value that is not the user's own as a comment
    template: str | None = None  # the template that it was merged over
    notices: list[str] = []  # sentences about keys without effect


class EffectiveConfig(ConfigText):
    """An experiment's whole configuration, and where its values come from."""

    config: dict[str, Any]  # as a document
    origins: dict[str, str]  # "you", "template" or "default", by path

    def __str__(self) -> str:
        return self.yaml


class PreviewRequest(Wire):
    """A request for a preview of a search. `config` is as in CreateExperiment."""

    config: dict[str, Any]
    template: str | None = None
    seconds_per_batch: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class PlannedTrials(Wire):
    """Number of trials expected to stop at this length."""

    length: dict[str, float]  # {"epochs": 4}; with a time metric {name: amount}
    num_trials: int


class PlannedBracket(Wire):
    """A bracket before it runs; a search without brackets has one."""

    trials: list[PlannedTrials]  # shortest length first
    max_concurrent_trials: int | None = None


class Pace(Wire):
    """How long one unit of training takes, and where that number comes from."""

    unit: str
    seconds_per_unit: float
    source: str  # "as given", or the experiment that it was measured in


class PlannedRange(Wire):
    """A hyperparameter that the search draws: its range as text, and values of some trials."""

    name: str
    range: str
    samples: list[str]


class ImportanceView(Wire):
    """How important each hyperparameter of a search is for its best trials."""

    metric: str  # the searcher's metric
    num_trials: int  # number of trials compared: those that ended with a value of it
    num_ended: int = 0  # number of trials that had ended
    shares: dict[str, float] = {}  # importance by dotted key, the largest first; they sum to 1
    sentence: str = ""  # why there are no shares, if there are none


class TrialEstimate(Wire):
    """What one rank of a trial needs; numbers of bytes are None if they are not known."""

    trial: Literal["first", "smallest", "largest"]  # the others have all ranges at their ends
    hparams: dict[str, Any]  # those that are drawn, by their paths with dots
    # With real batches on slots, or without a slot on tensors that have no values.
    way: Literal["slot", "meta"]
    slots: int
    is_gpu: bool = False
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    optimizer_bytes: int | None = None
    activation_bytes: int | None = None  # the most that autograd saves for backward passes
    peak_bytes: int | None = None  # the most at a time, buffers and temporary tensors included
    slot_bytes: int | None = None  # memory of the GPU, or of the computer
    seconds_per_batch: float | None = None
    problem: str = ""  # why a batch could not be computed


class PreviewView(Wire):
    """What a search would train."""

    searcher: str  # its name
    metric: str
    unit: str  # unit of all amounts: batches, records, epochs or the time metric
    num_trials: int  # how many trials there will be
    trials: list[PlannedTrials]  # trials of all brackets together
    brackets: list[PlannedBracket]
    expected: float  # units of training, all trials together
    least: float  # the same, if as few trials as possible are promoted
    most: float  # the same, if as many trials as possible are promoted
    full: float  # the same, if every trial was trained to the full length
    concurrent: int = 0  # number of trials that the existing slots can train at a time
    slots: int = 0  # number of these slots
    pace: Pace | None = None  # speed from which times are calculated; None: unknown
    no_pace: str = ""  # why it is not known
    seconds: float | None = None  # how long the search would take on these slots
    least_seconds: float | None = None  # the same, if as few trials as possible are promoted
    ranges: list[PlannedRange] = []  # the hyperparameters that the search draws
    notices: list[str] = []
    estimates: list[TrialEstimate] = []  # measured by the client, with --estimate


class ContinueExperiment(Wire):
    """A request to continue an experiment that has ended, under the same number."""

    config: dict[str, Any] = {}  # merged over its configuration; only for searcher `single`


class ContinueTrial(Wire):
    """A request to continue a trial as a new experiment. Repeatable by its key."""

    # Counted from the trial's beginning; None: the full length of its search.
    length: dict[str, StrictWhole] | StrictWhole | None = None
    key: Key = ""


class ImportedMetrics(Wire):
    """A part of the metrics and progress of an imported trial, as lines of a journal.

    It is stored only if exactly `first` lines were stored before, so it can be sent again.
    """

    first: Count
    text: str


class ImportedLine(Wire):
    """A line that a rank of an imported trial printed."""

    at: Timestamp
    run: Count = 0
    rank: Rank = 0
    text: Annotated[PrintableText, Field(max_length=MAX_IMPORTED_LINE)]
    agent: Annotated[str, Field(max_length=200)] = ""


class ImportedLines(Wire):
    """A part of the printed lines of an imported trial.

    It is stored only if exactly `first` lines were stored before, so it can be sent again.
    """

    first: Count
    lines: list[ImportedLine]


class NumStored(Wire):
    """How many lines of an imported trial are stored: of metrics, or of what it printed."""

    lines: Count
