"""Makes the view of a verdict from the wire type. Pure."""

from __future__ import annotations

from det_jupyter.view.model.verdict import VERDICT_WORDS, Cause, TimeShare, Verdict
from det_jupyter.wire import Cause as FoundCause
from det_jupyter.wire import Verdict as Found
from det_jupyter.wire.verdict import VerdictKind


def build_verdict(found: Found) -> Verdict:
    """Return what the view shows of a verdict."""
    return Verdict(
        kind=found.kind,
        word=VERDICT_WORDS[found.kind],
        sentence=found.sentence,
        causes=[_cause(cause) for cause in found.causes],
        shares=[
            TimeShare(kind=kind, word=VERDICT_WORDS[kind], share=share)
            for kind, share in sorted(found.shares.items(), key=lambda item: _place(item[0]))
        ],
        at=found.at,
        batches=found.batches,
    )


def _place(kind: VerdictKind) -> int:
    return list(VERDICT_WORDS).index(kind)


def _cause(cause: FoundCause) -> Cause:
    return Cause(
        kind=cause.kind,
        word=VERDICT_WORDS[cause.kind],
        share=cause.share,
        rank=cause.rank,
        evidence=cause.evidence,
        advice=cause.advice,
    )
