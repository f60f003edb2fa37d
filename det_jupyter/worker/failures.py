"""What a rank says of the error that ends it."""

from __future__ import annotations

import time
from dataclasses import replace
from types import CodeType

from det_jupyter.core.lost import is_lost_peer, is_lost_worker
from det_jupyter.core.tracebacks import CodeNames, Explanation
from det_jupyter.errors import ConfigError, PeerRefused, ProtocolMismatch
from det_jupyter.printed import last_lines
from det_jupyter.records import RankFailure
from det_jupyter.wire import RankSpec
from det_jupyter.worker.endings import ExitedWith

_LAST_LINES = 10  # that a rank printed before its error
_SECONDARY_DELAY_S = 0.5


def explain(names: CodeNames, error: BaseException, code: CodeType | None = None) -> Explanation:
    """Explain the error, even if its own methods raise."""
    try:
        explanation = names.explain(error, code)
        # What has called sys.exit has told why; Python prints no traceback either.
        return replace(explanation, traceback="") if isinstance(error, ExitedWith) else explanation
    except BaseException as unspeakable:  # the rank must report its failure in any case
        line = f"{type(error).__name__} (telling more failed: {type(unspeakable).__name__})"
        return Explanation(error=line, traceback=f"{line}\n", where="")


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
    message = explanation.error
    if isinstance(error, ModuleNotFoundError) and error.name == "determined":
        message += "; code for Determined needs `pip install det-jupyter-determined`"
    if isinstance(error, ExitedWith):
        message = _with_last_line(message, printed)
    is_secondary = spec.place.world_size > 1 and is_lost_peer(error)
    if is_secondary:
        message = f"another rank is gone: {message}"
        time.sleep(_SECONDARY_DELAY_S)
    # A failure before the first batch repeats, unless an earlier run came further, or another
    # process caused it: a data-loader worker or command may be killed when memory is short.
    is_others = is_secondary or is_lost_worker(error) or isinstance(error, PeerRefused)
    is_others = is_others or (isinstance(error, ExitedWith) and error.was_killed)
    is_hopeless = trained == 0 and spec.plan.checkpoint is None and not is_others
    return RankFailure(
        at=time.time(),
        rank=spec.place.rank,
        error=message,
        traceback=_last_printed(printed, explanation) + explanation.traceback,
        where=explanation.where,
        final=isinstance(error, ConfigError | ProtocolMismatch) or is_hopeless,
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
