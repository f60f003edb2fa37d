"""The options of our magics, `%det_experiment` and `%det`; parsing never ends the kernel."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

CELL_HELP = """%%det_experiment [options]
<experiment configuration, YAML>

Runs the trial that the configuration's `entrypoint` names. The cell returns at once; the handle
it returns is also put into a variable (--var)."""
EPILOG = """examples:
  %%det_experiment --slots 2          submit the YAML below it
  %%det_experiment --preview          what the search below it would train
  %det_experiment list                everything that runs or ran
  %det_experiment show 7              the live view of experiment 7
  %det_experiment trials 7            its trials, best first
  %det_experiment logs 7 --rank 1     what rank 1 printed
  %det_experiment change 7 --max-trials 50 --max-length "{epochs: 12}"
  %det_experiment ? searcher.divisor  what a key of the configuration means"""
DET_EPILOG = """examples:
  %%det template set digits           keep the YAML below it as the template `digits`
  %det template set digits FILE       the same from a file
  %det template list --detail         all templates
  %%det_experiment --template digits  lay the YAML below it over the template"""
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


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number above 0")
    return value


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        message = f'got {text!r}, expected YAML in quotes, such as "{{epochs: 12}}"'
        raise argparse.ArgumentTypeError(message) from None


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
    parser.add_argument("--template", metavar="NAME", help="lay the YAML over this template")
    parser.add_argument(
        "--preview", action="store_true", help="show what the search would train; submit nothing"
    )
    parser.add_argument(
        "--seconds-per-batch", type=_positive, metavar="X", help="for the times of --preview"
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
    _with_id(verbs.add_parser("trials", help="print its trials, best first"))
    _with_id(verbs.add_parser("config", help="print its configuration and where it comes from"))
    _add_change(verbs.add_parser("change", help="give its search other limits while it runs"))
    help_on = verbs.add_parser("?", help="explain a key of the configuration")
    help_on.add_argument("path", nargs="?", default="", help="such as searcher.divisor")
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


def _add_change(parser: argparse.ArgumentParser) -> None:
    _with_id(parser)
    parser.add_argument("--max-trials", type=int, metavar="N", help="so many trials in all")
    parser.add_argument(
        "--max-length", type=_yaml, metavar="LENGTH", help='train longer: "{epochs: 12}"'
    )
    parser.add_argument(
        "--max-concurrent", type=int, metavar="N", help="so many trials train at once"
    )
    parser.add_argument(
        "--hyperparameters", type=_yaml, metavar="YAML", help="ranges for the trials to come"
    )


def det_parser() -> argparse.ArgumentParser:
    """Return the parser of `%det`."""
    parser = _Parser(
        prog="%det",
        description="Templates: parts of configurations that others are laid over.",
        epilog=DET_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    nouns = parser.add_subparsers(dest="noun", metavar="WHAT", required=True)
    template = nouns.add_parser("template", aliases=["tpl"], help="parts of configurations")
    verbs = template.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", aliases=["ls"], help="list all templates")
    listing.add_argument(
        "-d", "--detail", "--details", action="store_true", help="with what is in them"
    )
    _with_name(verbs.add_parser("show", aliases=["describe"], help="print a template"))
    setting = verbs.add_parser("set", help="keep the cell's YAML, or a file's, as a template")
    _with_name(setting)
    setting.add_argument("file", nargs="?", help="YAML; in a cell (%%%%det) the cell is meant")
    _with_name(verbs.add_parser("delete", aliases=["remove", "rm"], help="forget a template"))
    return parser


def _with_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the template")


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
