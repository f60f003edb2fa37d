"""`det`: parses one line of a shell and runs its verb.

Exit status: 0 success, 1 refused or failed, 2 wrong usage, 130 interrupted. Results go to stdout,
problems to stderr. What a verb needs is imported when it runs, so that `det` starts quickly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from det_jupyter._version import __version__
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import DetError, UsageError

REFUSED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
_OWN_MASTER = "det talks to your own master on this computer"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # streams of tests have none
        if reconfigure is not None:
            reconfigure(errors="replace")  # writes `?` where the encoding lacks a character
    try:
        status = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # such as by `| head`; nothing is left to be flushed at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def run(argv: Sequence[str]) -> int:
    """Run the verb of a line; print errors to stderr. Return the exit status."""
    from det_jupyter.front.verbs.grammar import HelpShown

    try:
        return _run_verb(_without_global_options(argv))
    except HelpShown:
        return 0
    except DetError as error:
        # It may quote what others have written, as names in a bucket.
        print(printable(str(error)), file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else REFUSED


def _without_global_options(argv: Sequence[str]) -> list[str]:
    """Return the words of a line; handle the options that Determined's `det` takes before a verb.

    Raises:
        UsageError: An option names a master or a user.
    """
    words = list(argv) or ["--help"]
    if words[0] in ("-v", "--version"):
        return ["version", *words[1:]]
    option = words[0].partition("=")[0]
    if option in ("-m", "--master", "-u", "--user"):
        raise UsageError(f"det: {option}: {_OWN_MASTER}; leave the option out")
    if os.environ.get("DET_MASTER") and "DET_ALLOCATION_ID" not in os.environ:  # of a trial
        print(f"Note: DET_MASTER has no effect: {_OWN_MASTER}.", file=sys.stderr)
    return words


def _run_verb(words: list[str]) -> int:
    if words == ["version"]:
        print(__version__)
        return 0
    from det_jupyter.front.cli.shell_table import shell_parser
    from det_jupyter.front.verbs.grammar import parse_words

    options = parse_words(shell_parser(), words)
    # It imports what `--help` does not need.
    from det_jupyter.front.cli.connecting import carry_out, shell_call

    result = carry_out(shell_call(options))
    if isinstance(result, int):
        return result
    if not isinstance(result, str):
        from det_jupyter.front.cli.following import print_handle

        return print_handle(result, options)
    if result:
        print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
