"""`det`: one line of a shell, from its words to its exit status.

Exit status: 0 well, 1 refused or failed, 2 the line is wrong, 130 interrupted. Answers go to
stdout, problems to stderr. What a verb needs is imported when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from det_jupyter._version import __version__
from det_jupyter.errors import DetError, NotFound, UsageError

REFUSED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
_OWN_MASTER = "det talks to your own master on this computer"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one line; return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        _write_what_can_be(stream)
    try:
        status = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # such as by `| head`; nothing is left to be flushed at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _write_what_can_be(stream: TextIO) -> None:
    """Have a stream write `?` where its encoding lacks a character."""
    reconfigure = getattr(stream, "reconfigure", None)  # streams of tests have none
    if reconfigure is not None:
        reconfigure(errors="replace")


def run(argv: Sequence[str]) -> int:
    """Carry out the words of a line; what goes wrong is printed."""
    from det_jupyter.front.verbs.grammar import HelpShown

    try:
        return _carry_out(_without_globals(argv))
    except HelpShown:
        return 0
    except UsageError as error:
        print(error, file=sys.stderr)
        return WRONG_USAGE
    except DetError as error:
        print(error, file=sys.stderr)
        return REFUSED


def _without_globals(argv: Sequence[str]) -> list[str]:
    """Return the words of a line, without what Determined's command takes ahead of them."""
    words = list(argv) or ["--help"]
    if words[0] in ("-v", "--version"):
        return ["version", *words[1:]]
    option = words[0].partition("=")[0]
    if option in ("-m", "--master", "-u", "--user"):
        raise UsageError(f"det: {option}: {_OWN_MASTER}; leave the option out")
    if os.environ.get("DET_MASTER") and "DET_ALLOCATION_ID" not in os.environ:  # of a trial
        print(f"Note: DET_MASTER has no effect: {_OWN_MASTER}.", file=sys.stderr)
    return words


def _carry_out(words: list[str]) -> int:
    if words == ["version"]:
        print(__version__)
        return 0
    from det_jupyter.front.cli.table import shell_parser
    from det_jupyter.front.verbs.grammar import parse_words

    options = parse_words(shell_parser(), words)
    answer = _answer(options)
    return answer if isinstance(answer, int) else _show(answer, options)


def _answer(options: Any) -> Any:
    """Return what the verb returns."""
    from det_jupyter.front.cli.calls import shell_call
    from det_jupyter.front.verbs.grammar import Call

    call: Call = shell_call(options)
    try:
        return options.verb.run(call)
    except NotFound as error:
        from det_jupyter.front.verbs.finding import with_existing

        raise with_existing(error, call.client, call.reader) from None


def _show(answer: Any, options: Any) -> int:
    if not isinstance(answer, str):
        from det_jupyter.front.cli.following import show

        return show(answer, options)
    if answer:
        print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
