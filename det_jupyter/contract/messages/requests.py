"""Submissions with their captured code, other requests of clients, and answers to them.

Requests that change what the master has stored are in changes.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import StrictWhole, Whole
from det_jupyter.errors import Problem


class CapturedName(Wire):
    """One name that travels with the trial."""

    name: str
    cell: str = ""  # "In [5]", a file name, or "" when unknown
    type: str
    size_bytes: int


class ContextRef(Wire):
    """A context directory, which the ranks work in a copy of."""

    blob: str  # digest of its tar file, the same for the same files (context/)
    num_files: int  # files in it
    size_bytes: int  # of all of them


class Capsule(Wire):
    """A trial taken out of a notebook: digests of blobs, and what a person wants to know."""

    # Name of the class or function, as the configuration gives it; of a command, the text of it.
    entrypoint: str
    # Blob with the pickle stream (protocol 5, cloudpickle by value); "" if the entrypoint is in a
    # module, or a command.
    payload: str = ""
    buffers: list[str] = []  # blobs with the stream's out-of-band buffers, in order
    sources: str  # blob with JSON `{filename: {"label": "Cell In[5]", "source": "..."}}`
    # Files of local modules, by path relative to their import root, to their blobs.
    modules: dict[str, str] = {}
    captured: list[CapturedName] = []  # what the stream holds, for people
    packages: dict[str, str] = {}  # versions of Python and of the imported distributions, by name
    # The context directory; None: ranks work in the notebook's folder itself.
    context: ContextRef | None = None
    # Blob with JSON `{"salt": ..., "values": {name: value}}`, the environment variables that the
    # configuration only names: they are nowhere else, and never shown.
    environment: str | None = None
    notices: list[str] = []  # things the user should know (a CUDA tensor was copied to the CPU)


class CodeView(Wire):
    """The source: of cells by label ("Cell In[5]"), of modules and a context by path."""

    files: dict[str, str]


Key = Annotated[str, Field(max_length=64)]


class Submission(Wire):
    """What an experiment is submitted with."""

    config: dict[str, Any]  # as the user wrote it in a request; later the effective one
    capsule: Capsule
    python: str  # interpreter of the ranks
    cwd: str  # the notebook's folder: working directory of the ranks
    notebook: str | None = None
    template: str | None = None  # name of the template that `config` is laid over
    parent_id: Whole | None = None  # it is a fork of this experiment


class CreateExperiment(Submission):
    """A request to run an experiment.

    It may be made again with the same key, whatever became of the answer: there is one experiment.
    """

    queue_anyway: bool = False  # though no pool can run it now: slots may come
    is_paused: bool = False  # it waits to be activated, and holds no slots before
    is_quiet: bool = False  # its end is not notified: what submits it waits for it, and reports
    key: Key = ""  # of the client's choice, new for each submission; none: it is not repeatable


class Refusal(Wire):
    """Body of every 4xx answer."""

    error: str  # name of a class in det_jupyter.errors
    problems: list[Problem]
    what: Literal["", "experiment", "trial"] = ""  # of which none has the number that is asked for
    number: int = 0


class SetTemplate(Wire):
    """A request to keep a template under its name, instead of what was there."""

    config: dict[str, Any]


class TemplateView(Wire):
    """A template: a part of a configuration that others are laid over."""

    name: str
    config: dict[str, Any]
    created_at: float
    updated_at: float


class ConfigText(Wire):
    """An experiment's whole configuration as text."""

    yaml: str  # each value that is not the user's own has its origin as a comment
    template: str | None = None  # the template that it was laid over
    notices: list[str] = []  # what in it has no effect, each in a sentence


class EffectiveConfig(ConfigText):
    """An experiment's whole configuration, and where its values come from."""

    config: dict[str, Any]  # it as a document
    origins: dict[str, str]  # "you", "template" or "default", by path

    def __str__(self) -> str:
        return self.yaml


class PreviewRequest(Wire):
    """A question what a search would train. `config` is as in CreateExperiment."""

    config: dict[str, Any]
    template: str | None = None
    seconds_per_batch: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class PlannedTrials(Wire):
    """Number of trials expected to stop at this length."""

    length: dict[str, float]  # {"epochs": 4}; of a time metric {name: amount}
    num_trials: int


class PlannedBracket(Wire):
    """A bracket before it runs, lowest length first; a search without brackets is one."""

    trials: list[PlannedTrials]
    max_concurrent_trials: int | None = None


class Pace(Wire):
    """How long one unit of training takes, and how that is known."""

    unit: str
    seconds_per_unit: float
    source: str  # "as given", or the experiment that it was measured in


class PlannedRange(Wire):
    """A hyperparameter that the search draws: its range in words, and values of some trials."""

    name: str
    range: str
    samples: list[str]


class ImportanceView(Wire):
    """How much each hyperparameter of a search sets its best trials apart."""

    metric: str  # the searcher's, which says what is best
    num_trials: int  # how many trials are compared: those that ended with that metric
    # By dotted key, of all the importance there is; the largest first.
    shares: dict[str, float] = {}
    sentence: str = ""  # why there are none; empty if there are some


class PreviewView(Wire):
    """What a search would train."""

    searcher: str  # its name
    metric: str
    unit: str  # of all amounts: batches, records, epochs or the time metric
    num_trials: int  # how many trials there will be
    trials: list[PlannedTrials]  # how many end where, all brackets together
    brackets: list[PlannedBracket]  # the same for each bracket
    expected: float  # units of training, all trials together
    least: float  # the same, if as few trials as possible are trained on
    most: float  # the same, if as many as possible are
    full: float  # the same, if every trial was trained to the full length
    concurrent: int = 0  # how many trials train at once on the slots that are there
    slots: int = 0  # those slots
    pace: Pace | None = None  # what the times are calculated with; None: not known
    no_pace: str = ""  # why not
    seconds: float | None = None  # how long the search would take on these slots
    least_seconds: float | None = None  # the same, if as few trials as possible are trained on
    ranges: list[PlannedRange] = []  # what the search draws from
    notices: list[str] = []


class ContinueExperiment(Wire):
    """A request to go on with an experiment that is over, under its own number."""

    config: dict[str, Any] = {}  # laid over its configuration; only for `single`


class ContinueTrial(Wire):
    """A request to train a trial on, as an experiment of its own. Repeatable by its key, too."""

    # Counted from the trial's beginning; None: its search's full length.
    length: dict[str, StrictWhole] | StrictWhole | None = None
    key: Key = ""
