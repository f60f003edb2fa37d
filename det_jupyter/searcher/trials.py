"""The trials of one search, stored in columns, since a search may have a million.

    drawn from the experiment's one generator, in this order for each trial that is created: its
    hyperparameters, then the five words of its seed (schema/seeds.py).

    status     t ──► r ──► t     trains; rests at a rung; trains on
               t, r ──► c        closed: it trained its full length, or passed the top rung
               t, r ──► s        stopped: closed before that
               t, r ──► x        ended by itself: failed, was killed, or its code stopped it
               t, r ──► i        ended with InvalidHP, and was replaced

A trial is over when it has exited; a closed one takes a while until it does.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from det_jupyter.contract.schema.hyperparameters import sample_hparams
from det_jupyter.contract.schema.seeds import draw_trial_seed, make_generator
from det_jupyter.searcher.method import AskSampler, Create

ASKED, TRAINING, RESTING, CLOSED, STOPPED, EXITED, INVALID = (ord(letter) for letter in "?trcsxi")
_OPEN = (TRAINING, RESTING)
MAX_AT_WORK = 1000  # most trials at a time: they are created at once, and all of them queue
# A limit, because in a space without valid hyperparameters every sample would be replaced.
_MOST_INVALID = 100
_MOST_INVALID_PER_TRIAL = 10


class Trials:
    """Creates trials, counts them, and stores the bracket, rung and status of each."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.hyperparameters = hyperparameters
        self.generator = make_generator(seed)
        self.num_created = 0  # rows from this index on: requested from the sampler
        self.num_over = 0
        self.num_invalid = 0
        self.bracket = array("i")
        self.rung = array("h")
        self.status = bytearray()
        self._is_over = bytearray()

    @property
    def num_requested(self) -> int:
        """Number of trials, including those requested from the sampler."""
        return len(self.status)

    def has_room(self, max_trials: int, max_concurrent_trials: int) -> bool:
        """Return whether another trial may begin; `max_concurrent_trials` 0: no limit."""
        limit = min(max_concurrent_trials or max_trials, MAX_AT_WORK)
        is_room = self.num_requested - self.num_over < limit
        return is_room and self.num_requested - self.num_invalid < max_trials

    def share_over(self, max_trials: int) -> float:
        """Return the fraction of `max_trials` that are over; replaced trials do not count."""
        return (self.num_over - self.num_invalid) / max_trials

    def create(self, bracket: int = 0, hparams: dict[str, Any] | None = None) -> Create:
        """Create the next trial, with `hparams` or drawn hyperparameters."""
        self._add_row(bracket, TRAINING)
        return self._create(hparams)

    def ask(self) -> AskSampler:
        """Request the next trial from the sampler; `create_asked` creates it."""
        self._add_row(0, ASKED)
        return AskSampler(self.num_requested - 1)

    def create_asked(self, hparams: dict[str, Any]) -> Create:
        """Create the first of the requested trials."""
        self.status[self.num_created] = TRAINING
        return self._create(hparams)

    def _create(self, hparams: dict[str, Any] | None) -> Create:
        index = self.num_created
        self.num_created += 1
        if hparams is None:
            hparams = sample_hparams(self.hyperparameters, self.generator)
        return Create(index, hparams, draw_trial_seed(self.generator))

    def _add_row(self, bracket: int, status: int) -> None:
        self.bracket.append(bracket)
        self.rung.append(0)
        self.status.append(status)
        self._is_over.append(False)

    def is_open(self, index: int) -> bool:
        """Return whether the trial trains or rests: it was not closed and has not exited."""
        return self.status[index] in _OPEN

    def note_exit(self, index: int) -> bool:
        """Record the exit of a trial; return False if it is recorded already or does not exist."""
        if index >= self.num_created or self._is_over[index]:
            return False
        self._is_over[index] = True
        self.num_over += 1
        return True

    def replace(self, index: int, max_trials: int) -> bool:
        """Mark a trial with InvalidHP as replaced; return False if too many were replaced."""
        limit = max(_MOST_INVALID, _MOST_INVALID_PER_TRIAL * max_trials)
        if self.num_invalid >= limit:
            return False
        self.num_invalid += 1
        self.status[index] = INVALID
        return True

    def snapshot(self) -> dict[str, Any]:
        """Return everything but the hyperparameters, JSON-ready."""
        return {
            "generator": list(self.generator.getstate()[1]),
            "num_created": self.num_created,
            "num_over": self.num_over,
            "num_invalid": self.num_invalid,
            "bracket": self.bracket.tolist(),
            "rung": self.rung.tolist(),
            "status": self.status.decode("ascii"),
            "is_over": "".join("01"[is_over] for is_over in self._is_over),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self.generator.setstate((3, tuple(snapshot["generator"]), None))
        self.num_created = snapshot["num_created"]
        self.num_over = snapshot["num_over"]
        self.num_invalid = snapshot["num_invalid"]
        self.bracket = array("i", snapshot["bracket"])
        self.rung = array("h", snapshot["rung"])
        self.status = bytearray(snapshot["status"], "ascii")
        self._is_over = bytearray(letter == "1" for letter in snapshot["is_over"])
