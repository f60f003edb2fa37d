"""The options of `%det_experiment`, as line and as cell magic; parsing never ends the kernel."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import NoReturn

from IPython.core.error import UsageError

CELL_HELP = """%%det_experiment [options]
<experiment configuration, YAML>

Runs the trial that the configuration's `entrypoint` names. The cell returns at once; the handle
it returns is also put into a variable (--var)."""
EPILOG = """examples:
  %%det_experiment --slots 2          submit the YAML below it
  %det_experiment list                everything that runs or ran
  %det_experiment show 7              the live view of experiment 7
  %det_experiment logs 7 --rank 1     what rank 1 printed"""
VERBS = ("pause", "activate", "cancel", "kill")


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises one-line UsageErrors instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog.split()[0]} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpShown


class HelpShown(Exception):
    """`--help` was given and answered."""


def _experiment_id(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected the number of an experiment")
    return int(text)


def cell_parser() -> argparse.ArgumentParser:
    """Return the parser of `%%det_experiment`'s first line."""
    parser = _Parser(
        prog="%%det_experiment",
        description=CELL_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=argparse.SUPPRESS,
    )
    parser.add_argument("--name", help="name of the experiment, instead of the YAML's")
    parser.add_argument("--slots", type=int, metavar="N", help="resources.slots_per_trial")
    parser.add_argument(
        "--var", default="experiment", help="variable for the handle (default: experiment)"
    )
    parser.add_argument("--wait", action="store_true", help="block until it has ended")
    parser.add_argument(
        "--dry-run", action="store_true", help="check and show what would travel; submit nothing"
    )
    parser.add_argument(
        "--allow-large", action="store_true", help="send more than 1 GiB of captured data"
    )
    return parser


def line_parser() -> argparse.ArgumentParser:
    """Return the parser of `%det_experiment`."""
    parser = _Parser(
        prog="%det_experiment",
        description="See and steer experiments; as a cell magic (%%det_experiment) submit one.",
        epilog=f"{EPILOG}\n\nas a cell magic: {cell_parser().format_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="list all experiments")
    _with_id(verbs.add_parser("show", help="show the live view of an experiment"))
    logs = verbs.add_parser("logs", help="print what the ranks printed")
    _with_id(logs)
    logs.add_argument("--rank", type=int, help="only this rank")
    logs.add_argument("--tail", type=int, default=100, help="how many lines (default: 100)")
    for verb, text in zip(
        VERBS,
        (
            "all ranks save their state and give their slots back",
            "go on from where it was paused",
            "end it after saving its state",
            "end it now",
        ),
        strict=True,
    ):
        _with_id(verbs.add_parser(verb, help=text))
    return parser


def _with_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", type=_experiment_id, help="number of the experiment")


def parse(parser: argparse.ArgumentParser, line: str) -> argparse.Namespace:
    """Parse a magic's line.

    Raises:
        UsageError: One line that says what is wrong.
        HelpShown: The line asked for help, which is printed.
    """
    try:
        words: Sequence[str] = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{parser.prog}: {error}") from None
    return parser.parse_args(words)
