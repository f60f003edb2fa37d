"""What a rank that the agent has started reports of the error that ends it."""

from __future__ import annotations

from dataclasses import replace
from types import CodeType

from det_jupyter.core import failures
from det_jupyter.core.lost import is_lost_peer
from det_jupyter.core.tracebacks import CodeNames, Explanation
from det_jupyter.printed import last_lines
from det_jupyter.records import RankFailure
from det_jupyter.wire import RankSpec
from det_jupyter.worker.endings import ExitedWith

_LAST_LINES = 10  # that a rank printed before its error


def explain(names: CodeNames, error: BaseException, code: CodeType | None = None) -> Explanation:
    """Explain the error, even if its own methods raise."""
    explanation = failures.explain(names, error, code)
    # What has called sys.exit has said why; Python prints no traceback either.
    return replace(explanation, traceback="") if isinstance(error, ExitedWith) else explanation


def make_failure(
    spec: RankSpec, error: BaseException, explanation: Explanation, *, trained: int, printed: str
) -> RankFailure:
    """Return the record of a failure. Waits a moment if another rank has caused it.

    Args:
        spec: The rank.
        error: What ends it.
        explanation: The error as the user should read it.
        trained: Steps in this run.
        printed: The end of what the rank had printed before.
    """
    message, was_killed = explanation.error, False
    if isinstance(error, ExitedWith):
        message, was_killed = _with_last_line(message, printed), error.was_killed
    shown = _last_printed(printed, explanation) + explanation.traceback
    return failures.failure_of(
        error,
        replace(explanation, error=message, traceback=shown),
        rank=spec.place.rank,
        is_echo=spec.place.world_size > 1 and is_lost_peer(error),
        is_early=trained == 0 and spec.plan.checkpoint is None and not was_killed,
    )


def _with_last_line(message: str, output: str) -> str:
    """Return the message with the last line of the output, which is likely to say why."""
    line = last_lines(output, 1, most=300).strip()
    return message if not line or line in message else f"{message}; it printed at last: {line}"


def _last_printed(output: str, explanation: Explanation) -> str:
    """Return the last lines of the output, if the explanation lacks them."""
    text = last_lines(output, _LAST_LINES, most=300)
    if not text.strip() or text in explanation.printed:
        return ""
    return f"It printed at last:\n{text}\n\n"
