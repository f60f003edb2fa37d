"""The verdict on a run while it trains: it follows the facts without flickering.

another kind, rank or cause      published when it was found twice in a row
the same                         published when shares changed by at least STILL
too little data                  the last verdict stays, if there is one
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from det_jupyter.contract.messages.reports import SystemSample
from det_jupyter.contract.messages.verdicts import Verdict
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.diagnosis.run_facts import Setting
from det_jupyter.diagnosis.sentences import TOO_EARLY, TOO_SHORT, to_sentences
from det_jupyter.diagnosis.stragglers import has_too_few_slices
from det_jupyter.diagnosis.verdict_rules import NOTABLE, find_causes
from det_jupyter.diagnosis.window import Window

STILL = 0.04
TOO_FEW = "too few intervals to tell a slow rank from uneven steps"


class RunVerdict:
    """The verdict on one run, from reported times and samples.

    Args:
        setting: May be replaced later, as other processes start and end on the run's GPUs.
        verdict: The last verdict on the trial, of an earlier run or an earlier master.
    """

    def __init__(self, setting: Setting, verdict: Verdict | None = None) -> None:
        self.setting = setting
        self.verdict = verdict
        self._window = Window(setting)
        self._pending: Hashable = None

    def add_times(self, rank: int, times: StepTimes) -> bool:
        """Add an interval of a rank; return False if it was added before."""
        return self._window.add_times(rank, times)

    def add_sample(self, agent_id: str, sample: SystemSample) -> None:
        self._window.add_sample(agent_id, sample)

    def judge(self, at: float, *, is_last: bool = False) -> Verdict | None:
        """Return the verdict if it differs from the published one, else None.

        Args:
            is_last: Whether the run has ended: then there is a verdict also on few measurements.
        """
        missing = self._window.missing()
        if not missing and not is_last and not self._is_known:
            missing = self._window.without_period(NOTABLE)
        if missing:
            return self._unknown(at, TOO_SHORT if is_last else TOO_EARLY.format(missing=missing))
        facts = self._window.facts()
        causes = () if self.verdict is None else self.verdict.causes
        if not is_last and has_too_few_slices(facts):
            return self._unknown(at, TOO_EARLY.format(missing=TOO_FEW))
        setting = replace(self.setting, is_own_loop=self._window.is_own_loop)
        found = find_causes(facts, setting, {cause.kind for cause in causes})
        verdict = Verdict(
            kind=found.kind,
            sentence=to_sentences(found, can_try=not setting.is_own_loop),
            causes=list(found.causes) if found.kind != "healthy" else [],
            shares=dict(found.shares),
            at=at,
            batches=facts.batches,
            network=found.network,
        )
        return self._publish(verdict) if is_last or self._is_settled(verdict) else None

    @property
    def _is_known(self) -> bool:
        return self.verdict is not None and self.verdict.kind != "unknown"

    def _unknown(self, at: float, sentence: str) -> Verdict | None:
        if self._is_known:
            return None
        return self._publish(Verdict(kind="unknown", sentence=sentence, at=at, batches=0))

    def _is_settled(self, verdict: Verdict) -> bool:
        published = self.verdict
        if published is None or published.kind == "unknown":
            return True
        if _identity(verdict) == _identity(published):
            self._pending = None
            return _differs(verdict, published)
        is_again = self._pending == _identity(verdict)
        self._pending = None if is_again else _identity(verdict)
        return is_again

    def _publish(self, verdict: Verdict) -> Verdict | None:
        published = self.verdict
        if (
            published is not None
            and verdict.sentence == published.sentence
            and not _differs(verdict, published)
        ):
            return None
        self.verdict = verdict
        return verdict


def _identity(verdict: Verdict) -> Hashable:
    """Return the parts of a verdict whose change makes it a new one; none is a number."""
    return (
        verdict.kind,
        tuple(sorted((cause.kind, cause.rank, cause.because) for cause in verdict.causes)),
    )


def _differs(verdict: Verdict, other: Verdict) -> bool:
    kinds = verdict.shares.keys() | other.shares.keys()
    return any(
        abs(verdict.shares.get(kind, 0.0) - other.shares.get(kind, 0.0)) >= STILL for kind in kinds
    )
