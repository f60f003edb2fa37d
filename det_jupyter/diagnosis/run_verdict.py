"""The verdict on a run, as it goes on: it changes with the facts, and does not flicker.

another kind, rank or cause      is shown when it was found twice in a row
the same, with shares that moved by less than STILL      the sentence that is shown stays
too little seen                  the last verdict stays, if there is one
"""

from __future__ import annotations

from collections.abc import Hashable

from det_jupyter.contract.messages.gangs import SystemSample
from det_jupyter.contract.messages.views import Verdict
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.diagnosis.facts import Setting
from det_jupyter.diagnosis.rules import NOTABLE, find
from det_jupyter.diagnosis.sentences import TOO_EARLY, TOO_SHORT, put
from det_jupyter.diagnosis.waiting import has_too_few_slices
from det_jupyter.diagnosis.window import Window

STILL = 0.04
TOO_FEW = "too few intervals to tell a slow rank from uneven steps"


class RunVerdict:
    """The verdict on one run, from what is reported of it.

    Its `setting` may be replaced, as processes come and go on its GPUs. The `verdict` to begin
    with is the last one, of an earlier run or an earlier process.
    """

    def __init__(self, setting: Setting, verdict: Verdict | None = None) -> None:
        self.setting = setting
        self.verdict = verdict
        self._window = Window(setting)
        self._pending: Hashable = None

    def add_times(self, rank: int, times: StepTimes) -> bool:
        """Add an interval of a rank; return False for one that is known already."""
        return self._window.add_times(rank, times)

    def add_sample(self, agent_id: str, sample: SystemSample) -> None:
        self._window.add_sample(agent_id, sample)

    def judge(self, at: float, *, is_last: bool = False) -> Verdict | None:
        """Return the verdict at a time if it has changed; None: what is shown still holds.

        `is_last`: nothing comes any more, so what is found is shown at once.
        """
        missing = self._window.missing()
        if not missing and not is_last and not self._is_known:
            missing = self._window.unclear(NOTABLE)
        if missing:
            return self._say_unknown(
                at, TOO_SHORT if is_last else TOO_EARLY.format(missing=missing)
            )
        facts = self._window.facts()
        causes = () if self.verdict is None else self.verdict.causes
        if not is_last and has_too_few_slices(facts):
            return self._say_unknown(at, TOO_EARLY.format(missing=TOO_FEW))
        found = find(facts, self.setting, {cause.kind for cause in causes})
        verdict = Verdict(
            kind=found.kind,
            sentence=put(found),
            causes=list(found.causes) if found.kind != "healthy" else [],
            shares=dict(found.shares),
            at=at,
            batches=facts.batches,
        )
        return self._show(verdict) if is_last or self._is_settled(verdict) else None

    @property
    def _is_known(self) -> bool:
        return self.verdict is not None and self.verdict.kind != "unknown"

    def _say_unknown(self, at: float, sentence: str) -> Verdict | None:
        if self._is_known:
            return None
        return self._show(Verdict(kind="unknown", sentence=sentence, at=at, batches=0))

    def _is_settled(self, verdict: Verdict) -> bool:
        shown = self.verdict
        if shown is None or shown.kind == "unknown":
            return True
        if _gist(verdict) == _gist(shown):
            self._pending = None
            return _moved(verdict, shown)
        is_again = self._pending == _gist(verdict)
        self._pending = None if is_again else _gist(verdict)
        return is_again

    def _show(self, verdict: Verdict) -> Verdict | None:
        shown = self.verdict
        if shown is not None and verdict.sentence == shown.sentence and not _moved(verdict, shown):
            return None
        self.verdict = verdict
        return verdict


def _gist(verdict: Verdict) -> Hashable:
    """Return what distinguishes verdicts: neither shares nor numbers."""
    return (
        verdict.kind,
        tuple(sorted((cause.kind, cause.rank, cause.because) for cause in verdict.causes)),
    )


def _moved(verdict: Verdict, shown: Verdict) -> bool:
    kinds = verdict.shares.keys() | shown.shares.keys()
    return any(
        abs(verdict.shares.get(kind, 0.0) - shown.shares.get(kind, 0.0)) >= STILL for kind in kinds
    )
