"""Interruptions at given batches, to verify that a trial resumes bit-identically.

    DET_JUPYTER_INTERRUPT="pause@7 kill@15"

The first run of the trial leaves after batch 7 as if it were preempted; the second, which
continues from there, is killed by SIGKILL after batch 15, on every rank; the third runs to its
end. Only `experiment.verify_resume()` sets the variable. Rank 0 writes to stderr on which agent
each run is, and each interruption; `verify_resume` reads these lines.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from det_jupyter.errors import ConfigError

VARIABLE = "DET_JUPYTER_INTERRUPT"
_ENTRY = re.compile(r"(pause|kill)@([0-9]+)")


@dataclass(frozen=True, slots=True)
class Interruption:
    """The interruption of one run, at a number of batches since the trial's beginning."""

    kind: Literal["pause", "kill"]
    steps_completed: int

    @classmethod
    def of(cls, environment: Mapping[str, str], run: int) -> Interruption | None:
        """Return the interruption of a run, counted from 1; None if it has none.

        Raises:
            ConfigError: The variable DET_JUPYTER_INTERRUPT is malformed.
        """
        entries = environment.get(VARIABLE, "").split()
        matches = [_ENTRY.fullmatch(entry) for entry in entries]
        wrong = [entry for entry, match in zip(entries, matches, strict=True) if not match]
        if wrong:
            raise ConfigError(
                [f"{VARIABLE}: got {entry!r}, expected pause@N or kill@N" for entry in wrong]
            )
        if not 1 <= run <= len(matches):
            return None
        match = matches[run - 1]
        assert match is not None
        return cls(cast(Literal["pause", "kill"], match[1]), int(match[2]))

    def carry_out(self, *, is_chief: bool) -> None:
        """Kill this process; or, for a pause, return so that the run can leave.

        All ranks must call it after the same batch; it is not collective. The chief reports it on
        stderr.
        """
        if is_chief:
            sys.stderr.write(f"{VARIABLE}: {self.kind}@{self.steps_completed}\n")
            sys.stderr.flush()
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def write_place(environment: Mapping[str, str], *, run: int, agent_id: str) -> None:
    """Write to stderr on which agent a run is, if `VARIABLE` is set. Called by rank 0."""
    if environment.get(VARIABLE):
        sys.stderr.write(f"{VARIABLE}: run {run} on {agent_id}\n")
