"""Every error that det_jupyter raises on purpose.

    DetError                      anything we refuse or report; the message is for the user
    ├── UsageError                a line of a magic, or of the `det` command, is wrong
    ├── ConfigError               the experiment configuration is wrong (all problems at once)
    ├── CaptureError              the trial refers to an object that cannot be sent to the ranks
    ├── NotFound                  no such experiment, trial, checkpoint, slot
    ├── Conflict                  the request does not fit the present state
    │   └── InvalidTransition     an edge that the transition tables do not have
    ├── WaitTimeout               the experiment has not ended in time (a TimeoutError too)
    ├── MasterUnreachable         no master answers, or it cannot be started
    │   ├── MasterStopped         none runs, and the last one was not killed
    │   └── AgentDismissed        the master does not accept this agent's token any more
    ├── ProtocolMismatch          programs, or what they stored, are of incompatible versions
    ├── LaunchError               a gang of ranks could not be started
    ├── PeerRefused               data that a rank received does not come from its gang
    ├── RankFailed                a rank ended with an error (carries its traceback)
    ├── CheckpointError           a checkpoint is absent, damaged or does not fit
    │   ├── PartsConflict         files of the ranks contradict each other (a RuntimeError too)
    │   └── BucketProblem         a bucket does not do what it is asked for
    └── InvalidHP                 raised by a trial: these hyperparameters cannot work

Imports nothing from the rest of the package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a value; `str` returns it as a sentence for users.

    Args:
        path: Where the value is, such as `searcher.divisor`; "": the whole.
        text: What was given, what is required, and what to do if that is known.
        meant: The path that a key was probably meant to have; "": unknown.
        is_missing: Whether a required value is missing there.
        line: Number of the line that contains it; 0: unknown.
        source: The file or template with that line; "": clear from the context.
        in_yaml: `text` for a reader who has written a line of YAML, if it differs.
    """

    path: str
    text: str
    meant: str = ""
    is_missing: bool = False
    line: int = 0
    source: str = ""
    in_yaml: str = ""

    @classmethod
    def missing(cls, path: str, more: str) -> Problem:
        """Return the problem of a missing value; `more` is appended to the word "missing"."""
        return cls(path, f"missing{more}", is_missing=True)

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        return ": ".join(filter(None, (self.source, line, self.path, self.text)))


class DetError(Exception):
    """Base of all errors raised by det_jupyter.

    Args:
        command: The command in the message, for pages that show it apart from the message.
    """

    def __init__(self, *args: object, command: str = "") -> None:
        super().__init__(*args)
        self.command = command

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of a traceback: the message without our frames."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(DetError):
    """A line of a magic, or of the `det` command, is wrong; the message is one line."""


class ConfigError(DetError):
    """The configuration is wrong, or an argument; the message has a line for each problem.

    Args:
        problems: All problems, or the only one. A str is a problem of the whole.
    """

    def __init__(self, problems: Problem | str | Sequence[Problem | str]) -> None:
        found = [problems] if isinstance(problems, Problem | str) else problems
        self.problems = [Problem("", each) if isinstance(each, str) else each for each in found]
        super().__init__("\n".join(map(str, self.problems)))


class CaptureError(DetError):
    """Something that the trial refers to cannot be sent to the ranks."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class NotFound(DetError):
    """The requested object does not exist.

    Args:
        what: "experiment" or "trial" if there is none with this number; else "".
        number: That number; else 0.
    """

    def __init__(self, *args: object, what: str = "", number: int = 0) -> None:
        super().__init__(*args)
        self.what, self.number = what, number


class Conflict(DetError):
    """The request does not fit the present state."""


class InvalidTransition(Conflict):
    """A transition that the tables do not have; `story` contains the last events."""

    def __init__(self, message: str, story: Sequence[str] = ()) -> None:
        self.story = list(story)
        super().__init__(message)


class WaitTimeout(DetError, TimeoutError):
    """The experiment has not ended within the given time; it continues."""


class MasterUnreachable(DetError):
    """No master answers, or it could not be started."""


class MasterStopped(MasterUnreachable):
    """No master runs: none was started yet, or the last one has shut down."""


class AgentDismissed(MasterUnreachable):
    """The master does not accept an agent's token any more. Retrying does not help."""


class ProtocolMismatch(DetError):
    """Two programs, or a program and what another one stored, are of incompatible versions."""


class LaunchError(DetError):
    """A gang of ranks could not be started."""


class PeerRefused(DetError):
    """Data that a rank received is not signed with its gang's secret; it was not parsed."""


class RankFailed(DetError):
    """A rank ended with an error.

    Args:
        reason: Its error message.
        run: The experiment or trial, such as `experiment 3`.
        rank: The first rank that failed.
        exit_code: Exit status of that process (negative: killed by that signal).
        remote_traceback: The traceback as it was printed in the rank.
    """

    def __init__(
        self,
        reason: str,
        *,
        run: str = "",
        rank: int | None = None,
        exit_code: int | None = None,
        remote_traceback: str = "",
    ) -> None:
        self.rank = rank
        self.exit_code = exit_code
        self.remote_traceback = remote_traceback
        self.reason = reason
        super().__init__(f"{run} ended with an error: {reason}" if run else reason)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n\n{self.remote_traceback}" if self.remote_traceback else message


class CheckpointError(DetError):
    """A checkpoint is absent, damaged, or does not fit the model."""


class PartsConflict(CheckpointError, RuntimeError):
    """Files or metadata that the ranks would store in one checkpoint contradict each other."""


class BucketProblem(CheckpointError):
    """A bucket does not do what it is asked for. The message has no credentials.

    Args:
        kind: "away": it may do it later; "refused": keys or rights are missing; "absent": there is
            no such bucket or checkpoint; "taken": another checkpoint is there; "damaged".
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class InvalidHP(DetError):
    """Raise this in a trial whose hyperparameters cannot work: the trial ends without a retry."""


_STATUS: list[tuple[type[DetError], int]] = [
    (NotFound, 404),
    (Conflict, 409),
    (ProtocolMismatch, 409),
    (ConfigError, 422),
    (CaptureError, 422),
    (MasterUnreachable, 503),  # the master is ending: the client retries with the next one
]


def http_status(error: Exception) -> int:
    """Return the HTTP status for this error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def problems_in(content: bytes) -> str:
    """Return the sentences of a Refusal, the master's answer to a request that it refuses."""
    try:
        return "; ".join(str(Problem(**each)) for each in json.loads(content)["problems"])
    except (ValueError, KeyError, TypeError):
        return content[:200].decode(errors="replace")
