"""The options of `%det_experiment`, and how lines are parsed; that never ends the kernel."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from IPython.core.error import UsageError

CELL_HELP = """%%det_experiment [options]
<experiment configuration, YAML>

Runs the trial that the configuration's `entrypoint` names. The cell returns at once; the handle
it returns is also put into a variable (--var)."""
EPILOG = """examples:
  %%det_experiment --slots 2          submit the YAML below it
  %%det_experiment --local            a few batches right here, for prints and breakpoints
  %%det_experiment --preview          what the search below it would train
  %det_experiment list                everything that runs or ran
  %det_experiment show 7              the live view of experiment 7
  %det_experiment trials 7            its trials, best first
  %det_experiment logs 7 --rank 1     what rank 1 printed
  %det_experiment change 7 --max-trials 50 --max-length "{epochs: 12}"
  %det_experiment why 7               why it does not run, and what would start it
  %det_experiment set 7 --priority 10 before others, while it waits or runs
  %%det_experiment fork 7             the same with the changes in the YAML below it
  %det_experiment ? searcher.divisor  what a key of the configuration means"""
VERBS = {
    "pause": "all ranks save their state and give their slots back",
    "activate": "go on from where it was paused",
    "cancel": "end it after saving its state",
    "kill": "end it now",
    "archive": "hide it from lists",
    "unarchive": "show it in lists again",
}


class LineParser(argparse.ArgumentParser):
    """An argparse parser that raises one-line UsageErrors instead of exiting.

    `default_verb` is what is meant where a verb is left out.
    """

    default_verb: str | None = None

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog.split()[0]} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpShown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        nearest = get_close_matches(str(value), known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"expected {', '.join(known)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {hint}")


class HelpShown(Exception):
    """`--help` was given and answered."""


def experiment_number(text: str) -> int:
    """Return the number of an experiment."""
    if not text.isdigit():
        message = f"got {text!r}, expected the number of an experiment"
        raise argparse.ArgumentTypeError(message + number_hint(text))
    return int(text)


def number_hint(text: str) -> str:
    """Return what to type instead of an expression: IPython fills in what is in braces.

    >>> number_hint("w.id"), number_hint("w"), number_hint("{w.id}"), number_hint("7a")
    ('; write {w.id}', '; write {w.id}', '; w.id is not defined here', '')
    """
    if text.startswith("{") and text.endswith("}"):
        return f"; {text[1:-1]} is not defined here"
    if not all(part.isidentifier() for part in text.split(".")):
        return ""
    return f"; write {{{text if '.' in text else f'{text}.id'}}}"


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number above 0")
    return value


def yaml_value(text: str) -> Any:
    """Return what a piece of YAML says."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        message = f'got {text!r}, expected YAML in quotes, such as "{{epochs: 12}}"'
        raise argparse.ArgumentTypeError(message) from None


def limit(text: str) -> int | str:
    """Return a number of slots, or "none" for no limit."""
    if text.lower() == "none":
        return "none"
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number, or none")
    return int(text)


def _batches(text: str) -> int:
    """Return a number of batches, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of batches")
    return int(text)


def cell_parser() -> argparse.ArgumentParser:
    """Return the parser of `%%det_experiment`'s first line."""
    parser = LineParser(
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
        "--local",
        nargs="?",
        type=_batches,
        const=5,
        metavar="N",
        help="train N batches (5) right here, in this kernel; submit nothing",
    )
    parser.add_argument(
        "--preview", action="store_true", help="show what the search would train; submit nothing"
    )
    parser.add_argument(
        "--seconds-per-batch", type=positive, metavar="X", help="for the times of --preview"
    )
    parser.add_argument(
        "--allow-large", action="store_true", help="send more than 1 GiB of captured data"
    )
    _add_queue_anyway(parser)
    return parser


def _add_queue_anyway(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--queue-anyway", action="store_true", help="submit it though no pool can run it now"
    )


def line_parser() -> argparse.ArgumentParser:
    """Return the parser of `%det_experiment`."""
    parser = LineParser(
        prog="%det_experiment",
        description="See and steer experiments; as a cell magic (%%det_experiment) submit one.",
        epilog=f"{EPILOG}\n\nas a cell magic: {cell_parser().format_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.default_verb = "list"
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", aliases=["ls"], help="list experiments")
    listing.add_argument("-a", "--all", action="store_true", help="archived ones too")
    _with_id(verbs.add_parser("show", help="show the live view of an experiment"))
    logs = verbs.add_parser("logs", help="print what the ranks printed")
    _with_id(logs)
    logs.add_argument("--rank", type=int, help="only this rank")
    logs.add_argument("--tail", type=int, default=100, help="how many lines (default: 100)")
    _with_id(verbs.add_parser("trials", help="print its trials, best first"))
    _with_id(verbs.add_parser("config", help="print its configuration and where it comes from"))
    _with_id(verbs.add_parser("why", help="print why it does not run, and what would start it"))
    _add_change(verbs.add_parser("change", help="give its search other limits while it runs"))
    _add_set(verbs.add_parser("set", help="change its priority, weight, limit or pool"))
    for verb, text in VERBS.items():
        _with_id(verbs.add_parser(verb, help=text))
    delete = verbs.add_parser("delete", help="delete it with its checkpoints, for ever")
    _with_id(delete)
    delete.add_argument("--yes", "-y", action="store_true", help="do not ask")
    _add_retention(verbs.add_parser("retention", help="keep its best checkpoints, delete others"))
    _add_overrides(verbs.add_parser("continue", help="go on with it after its end"))
    fork = verbs.add_parser("fork", help="submit it anew, with changes, as another experiment")
    _add_overrides(fork)
    source = fork.add_mutually_exclusive_group()
    source.add_argument("--trial", type=int, metavar="N", help="start from its latest checkpoint")
    source.add_argument("--checkpoint", metavar="UUID", help="start from this checkpoint")
    _add_queue_anyway(fork)
    help_on = verbs.add_parser("?", help="explain a key of the configuration")
    help_on.add_argument("path", nargs="?", default="", help="such as searcher.divisor")
    return parser


def _add_set(parser: argparse.ArgumentParser) -> None:
    _with_id(parser)
    parser.add_argument("--priority", type=int, metavar="N", help="1 to 99, lower goes first")
    parser.add_argument("--weight", type=positive, metavar="W", help="share, under fair share")
    parser.add_argument(
        "--max-slots", type=limit, metavar="N", help="most slots of all its trials, or none"
    )
    parser.add_argument(
        "--pool", "--resource-pool", dest="pool", metavar="NAME", help="wait in this pool"
    )


def _add_retention(parser: argparse.ArgumentParser) -> None:
    _with_id(parser)
    for name, text in (
        ("experiment-best", "so many of the best of all"),
        ("trial-best", "so many of the best of each trial"),
        ("trial-latest", "so many of the latest of each trial"),
    ):
        parser.add_argument(f"--save-{name}", type=int, metavar="N", required=True, help=text)
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    _with_id(parser)
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change its configuration, such as searcher.max_length.epochs=12",
    )  # fmt: skip


def _add_change(parser: argparse.ArgumentParser) -> None:
    _with_id(parser)
    parser.add_argument("--max-trials", type=int, metavar="N", help="so many trials in all")
    parser.add_argument(
        "--max-length", type=yaml_value, metavar="LENGTH", help='train longer: "{epochs: 12}"'
    )
    parser.add_argument(
        "--max-concurrent", type=int, metavar="N", help="so many trials train at once"
    )
    parser.add_argument(
        "--hyperparameters", type=yaml_value, metavar="YAML", help="ranges for the trials to come"
    )


def _with_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", type=experiment_number, help="number of the experiment")


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
    return parser.parse_args(with_default_verb(parser, words))


def with_default_verb(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the words with the verb that is meant where none is given."""
    for place, word in enumerate(words):
        verbs = verb_parsers(parser)
        if word not in verbs:
            is_left_out = word.startswith("-") and word not in ("-h", "--help")
            return _inserted(parser, words, place) if verbs and is_left_out else list(words)
        parser = verbs[word]
    return _inserted(parser, words, len(words))


def _inserted(parser: argparse.ArgumentParser, words: Sequence[str], place: int) -> list[str]:
    default = getattr(parser, "default_verb", None)
    return list(words) if default is None else [*words[:place], default, *words[place:]]


def verb_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the words that may come next; none if there are no such words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
