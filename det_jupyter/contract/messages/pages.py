"""Frames between a page of JupyterLab and the reader: one WebSocket per tab, many documents.

    page -> reader     {"op": "follow", "id": 7, "document": "experiment", "args": {...},
                        "version": 12}
                       {"op": "ack", "id": 7, "version": 13}
                       {"op": "leave", "id": 7}
                       {"op": "ask", "id": 8, "experiment_id": 3, "question": {...}}
                       {"op": "ping"}
    reader -> page     {"op": "hello", "instance": ..., "version": ..., "protocol": ..., ...}
                       {"op": "document", "id": 7, "version": 12, "data": {...}}
                       {"op": "patch", "id": 7, "since": 12, "version": 13, "data": [...]}
                       {"op": "error", "id": 7, "error": "...", "kind": "NotFound"}
                                                              no more of the document
                       {"op": "answer", "id": 8, "error": "", "data": {...}}
                       {"op": "pong"}                         the answer to a ping
    server -> page     {"op": "master", "state": "stopped", "problem": "", "command": ""}

The page chooses `id`, which is unique in its socket; it is null in the error about an invalid
frame; `kind` is a class of errors.py. A patch has the changes from version `since` to `version`
(JSON Patch, RFC 6902; contract/documents/patches.py). Versions ascend, with gaps. After a lost
connection a page follows the document again with the version it has: it gets a patch if the
reader has kept the changes since, and else the whole. A version is valid if `instance` is the
same as before: a restarted reader has a new one. At most `MOST_UNACKED` versions of a document
are unacknowledged; later ones are merged until an `ack` arrives, so a slow page gets fewer
patches, and never outdated ones.

Jupyter Server relays the frames, and sends a frame `master` when the state of the master has
changed. The reader is a process of the master, so without a master there is none. Then the server
sends the `hello` itself, with an empty `instance`; it answers pings, answers questions with an
error, and drops other frames. When there is a reader again, its `hello` comes in the same socket,
and a page follows its documents again.

A frame with long lists of numbers is binary, and contains them as float64 columns. Other frames
are text (contract/documents/codec.py; tests/fixtures/frames.json has frames of both kinds):

    4 bytes    length of the header, little endian, unsigned
    header     JSON in UTF-8, in which {"$f64": [first, length, whether all are integers]} stands
               for a list, padded with spaces so that the columns start at a multiple of 8
    columns    float64, little endian; NaN stands for null

Documents, their arguments, and what they are (view/model/):

    experiments   {}                                  ExperimentList
    cluster       {}                                  ClusterState
    usage         {"period_s": 1.0}                   Usage: what slots did last
    experiment    {"experiment_id": 3, "chosen": 17}  ViewState
    curves        {"experiment_id": 3, "group": "validation"}    {"curves": [Curve, ...]}
    trials        {}                                  TrialList: trials and ranks, for Running
    comparison    {"experiment_ids": [3, 4]}          ComparisonState
    models        {}                                  ModelList
    model         {"id": 2}                           ModelState

Before it opens a socket, a page requests `GET det-jupyter/info`, the handshake:

    {"version": "0.1.0",        of det_jupyter in the Jupyter Server
     "protocol": 2,             PAGE_PROTOCOL
     "may_read": true,          whether the authorizer lets this user see experiments
     "may_write": true,         whether it lets this user change anything
     "may": {"experiments": ["read", "write", "execute"], "cluster": [...], "logs": [...],
             "templates": [...], "kernels": [...]},
     "master": {"state": "running", "version": "0.1.0", "problem": "", "command": ""}}

A master is `running`, `starting`, `stopped` (`POST det-jupyter/master/start` starts it, and
answers with the `master` of the handshake), `mismatch`: of another version, or `silent`: its
process runs and does not answer. `problem` is a sentence with the problem and its remedy,
`command` the command line in it; both are empty if there is no problem, or if the state alone is
clear. `hello` has the `version`, `protocol` and `master` of the handshake, and `instance`.

A request that is refused, by the master or by the extension, is answered with {"error": the name
of a class of errors.py, "problems": [{"path", "text", ...}]}: pages show `path: text`. A socket is
refused with HTTP 403 before it opens. Close codes: 1009 a frame is too large; 1012 the reader has
ended, 1013 it cannot be reached now (open again, later each time).

The questions are those of `client/answers/answering.py`; those that change something need
`may_write`. A reader, which has the experiment's state, answers one more:

    {"type": "kept"}  ->  {"kept": ...}   what a notebook keeps: `kept_forms` of
                                          `view/forms/notebook_output.py`

TypeScript's interfaces of the messages are generated (view/model/__main__.py).
"""

from __future__ import annotations

from typing import Any, Literal

from det_jupyter.contract.messages.queries import SeriesPage
from det_jupyter.contract.messages.rank_orders import TraceView
from det_jupyter.contract.messages.views import CheckpointView
from det_jupyter.contract.messages.wire import Wire

PAGE_PROTOCOL = 2
MOST_UNACKED = 2
ABSENT = (  # error of requests and questions; beside a button, pages have another text
    "no det_jupyter master runs; start it in the sidebar"
)


class MasterState(Wire):
    """The state of the master: the field `master` of the handshake."""

    state: Literal["running", "starting", "stopped", "silent", "mismatch"]
    version: str = ""
    problem: str = ""
    command: str = ""


class Handshake(Wire):
    """The answer to `GET det-jupyter/info`."""

    version: str
    protocol: int
    may_read: bool
    may_write: bool
    may: dict[str, list[str]]
    master: MasterState


class Hello(Wire):
    """The first frame of a socket."""

    op: Literal["hello"] = "hello"
    instance: str
    version: str
    protocol: int
    master: MasterState


class FirstConfiguration(Wire):
    """The answer to `POST det-jupyter/cell`: the first configuration of a class or function."""

    configuration: str


class CheckpointsAnswer(Wire):
    """The newest checkpoints of an experiment, the newest first."""

    checkpoints: list[CheckpointView]
    total: int  # number of all its checkpoints
    best: str  # uuid of the best one; "": there is none
    registered: dict[str, list[str]]  # versions of models by uuid, such as "mnist 3"
    models: list[str]  # names of models that versions can be registered in


class RegisteredAnswer(Wire):
    """The version of a model that a checkpoint has become."""

    model: str
    number: int


class SeriesAnswer(Wire):
    """The series of one trial, or of one agent."""

    page: SeriesPage


class SeriesByTrial(Wire):
    """The series of several trials, by trial id."""

    pages: dict[str, SeriesPage]


class RankStack(Wire):
    """The stack of a rank, or in `error` why it does not answer."""

    rank: int
    stack: str = ""
    error: str = ""


class StacksAnswer(Wire):
    """The stacks of a trial's ranks."""

    trial_id: int
    stacks: list[RankStack]


class ProfileAnswer(Wire):
    """A recorded profile: file and size of the first rank's trace, and the traces of all ranks."""

    path: str
    size_bytes: int
    text: str
    traces: list[TraceView]


class ChangeAnswer(Wire):
    """A change that was made, as text, and after how many batches it took effect."""

    text: str
    steps_completed: int | None


class BoardAnswer(Wire):
    """The page of a TensorBoard, and the line that a browser of another computer needs for it."""

    url: str
    tunnel: str


class CellAnswer(Wire):
    """The source of a cell, and with DetCallback added."""

    before: str
    after: str


class KeptAnswer(Wire):
    """What a notebook stores of an experiment, by MIME type."""

    kept: dict[str, Any]


class TabsAnswer(Wire):
    """The JavaScript of the tabs that a view loads later."""

    text: str
