"""Types of arguments (argparse's `type`), and the arguments that several verbs share."""

from __future__ import annotations

import math
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from det_jupyter.front.verbs.grammar import argument, flag, one_of

MAX_NUMBER = 2**53


def experiment_number(text: str) -> int:
    """Parse the id of an experiment."""
    return _decimal(text, "the number of an experiment")


def number_or_folder(text: str) -> int | str:
    """Parse the id of an experiment, or the path of a folder.

    >>> number_or_folder("7"), number_or_folder("./7")
    (7, './7')
    """
    return int(text) if text.isdecimal() else text


def experiment_numbers(text: str) -> list[range]:
    """Parse ids and ranges of experiments, separated by commas.

    >>> experiment_numbers("7"), experiment_numbers("3-5,9")
    ([range(7, 8)], [range(3, 6), range(9, 10)])
    """
    return [_range_of(part) for part in text.split(",")]


def _range_of(text: str) -> range:
    first, dash, last = text.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        if int(first) > int(last):
            raise ArgumentTypeError(f"got {text!r}, expected the lower number first")
        return range(int(first), min(int(last), MAX_NUMBER) + 1)
    number = experiment_number(text)
    return range(number, number + 1)


def trial_number(text: str) -> int:
    """Parse the id of a trial."""
    return _decimal(text, "the number of a trial, or --experiment ID")


def _decimal(text: str, expected: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"got {text!r}, expected {expected}")
    return int(text)


def whole(text: str) -> int:
    """Parse a whole number, at least 0."""
    return _decimal(text, "a whole number, 0 or more")


def port_number(text: str) -> int:
    """Parse the number of a TCP port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"got {text!r}, expected the number of a port, 1 to 65535")
    return int(text)


def positive(text: str) -> float:
    """Parse a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"got {text!r}, expected a number above 0")
    return value


def gpu_or_number(text: str) -> str | int:
    """Parse `gpu`, or a whole number of CPU places."""
    if text == "gpu":
        return text
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"got {text!r}, expected gpu or a number of CPU places")
    return int(text)


def yaml_value(text: str) -> Any:
    """Parse a value of YAML."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        message = f'got {text!r}, expected YAML in quotes, such as "{{epochs: 12}}"'
        raise ArgumentTypeError(message) from None


def key_and_value(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE, whose value is YAML.

    >>> key_and_value("accuracy=0.98")
    ('accuracy', 0.98)
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ArgumentTypeError(f"got {text!r}, expected KEY=VALUE")
    return key, yaml_value(value)


def limit(text: str) -> int | str:
    """Parse a number of slots, or "none" for no limit."""
    return "none" if text.lower() == "none" else _decimal(text, "a whole number, or none")


def ranks(text: str) -> list[int]:
    """Parse ranks separated by commas.

    >>> ranks("0,2")
    [0, 2]
    """
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentTypeError(f"got {text!r}, expected ranks such as 0,1")
    return [int(part) for part in parts]


def at_least_one(text: str) -> int:
    """Parse a whole number, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"got {text!r}, expected a whole number, 1 or more")
    return int(text)


def folder(text: str) -> str:
    """Check the path of a folder, which must not be empty, as an unset shell variable is."""
    if not text.strip():
        raise ArgumentTypeError(f"got {text!r}, expected the path of a folder")
    return text


def uuid(text: str) -> str:
    """Check the UUID of a checkpoint."""
    if not text or "/" in text:
        raise ArgumentTypeError(f"got {text!r}, expected the UUID of a checkpoint")
    return text


def checkpoint_pattern(text: str) -> str:
    """Check a UUID of a checkpoint, or a pattern such as 3f2*, 7/* or 7/12/*."""
    parts = text.split("/")
    if len(parts) > 3 or not all(parts):
        raise ArgumentTypeError(
            f"got {text!r}, expected the UUID of a checkpoint, or a pattern of UUID, "
            "EXPERIMENT/UUID or EXPERIMENT/TRIAL/UUID, such as '3f2*' or '7/*'"
        )
    return text


def checkpoint_patterns(text: str) -> list[str]:
    """Parse UUIDs or patterns of checkpoints separated by commas."""
    return [checkpoint_pattern(part) for part in text.split(",")]


def yes_or_no(text: str) -> bool:
    """Parse true or false."""
    if text.lower() not in ("true", "false"):
        raise ArgumentTypeError(f"got {text!r}, expected true or false")
    return text.lower() == "true"


def refused(sentence: str) -> Callable[[str], Any]:
    """Return the type of an unsupported option of Determined; its error is `sentence`."""

    def refuse(text: str) -> Any:
        raise ArgumentTypeError(sentence)

    return refuse


def not_kept(what: str) -> Callable[[str], Any]:
    """Return the type of an option of Determined that is refused: `what` is not recorded."""
    return refused(f"{what} is not recorded here; leave the option out")


NUMBERS = (experiment_number, experiment_numbers, trial_number)

# Repeated from contract.messages, which parsing a line must not import: it is slow.
LEVELS = ("debug", "info", "warning", "error", "critical")

ID = argument("id", type=experiment_number, metavar="ID", help="number of the experiment")
IDS = argument("ids", nargs="+", type=experiment_numbers, metavar="ID",
               help="numbers of experiments: 7, or 3 5-7, or 3,5-7")  # fmt: skip
TRIAL = argument("id", type=trial_number, metavar="ID", help="number of the trial")
FILE = argument("file", nargs="?", help="file with YAML; none above a cell with YAML")

AT_ONCE = flag("--at-once", help="kill ranks that have not left: what they did not save is lost")
YES = flag("--yes", "-y", help="do not ask")
QUEUE_ANYWAY = flag("--queue-anyway", help="submit it even if no pool can run it now")
FOLLOW_LINKS = flag("--follow-links", help="send the targets of links that lead out of the folder")
AS_DATA = one_of(flag("--csv", help="comma-separated values"), flag("--json", help="JSON"))
FORMS = ("csv", "json", "yaml", "quiet")  # options of a listing, and methods of Listing
_ROWS = (
    argument(
        "--limit",
        type=whole,
        metavar="N",
        help="how many rows (default: 50, experiments 20, as data all)",
    ),
    argument("--offset", type=whole, default=0, metavar="N", help="skip this number of rows"),
    argument("--pages", choices=("1", "all"), help="1: one page, of 200 rows or --limit N"),
)
# Of every listing; `listings.render` applies them.
PAGE = (
    *_ROWS,
    argument("--sort-by", metavar="COLUMN", help="sort by this column, such as state"),
    flag("--reverse", help="the last row first"),
    one_of(
        *AS_DATA.arguments,
        flag("--yaml", help="YAML"),
        flag("-q", "--quiet", help="print only numbers or names, for other verbs"),
    ),
)
TABLE = (flag("-a", "--all", help="all rows, however many"), *PAGE)

TITLE = argument("--name", dest="title", metavar="NAME", help="another name")
PRIORITY = argument("--priority", "-p", type=whole, metavar="N", help="1 to 99, the lowest first")
WEIGHT = argument("--weight", "-w", type=positive, metavar="W", help="share, under fair share")
POOL = argument("--pool", "--resource-pool", metavar="NAME", help="wait in this pool")

LOGS = (
    argument("--rank", "--rank-id", type=whole, metavar="N", help="only this rank"),
    argument("--agent", "--agent-id", metavar="NAME", help="only ranks on this agent (computer)"),
    one_of(
        argument("--tail", type=whole, metavar="N",
                 help="last lines (default: 100, in a shell all)"),
        argument("--head", type=at_least_one, metavar="N", help="first lines"),
    ),
    argument("--since", "--timestamp-after", metavar="WHEN",
             help="since 2026-01-31T14:00, or an age such as 10m"),
    argument("--until", "--timestamp-before", metavar="WHEN", help="until then"),
    argument("--level", type=str.lower, choices=LEVELS, help="only this level and higher ones"),
    argument("--search", metavar="TEXT", help="only with this text, or /regular expression/"),
    argument("--allocation-id", action="append", metavar="ID", help="only of this run: 3.1.2"),
    flag("-f", "--follow", help="wait for more until it has ended"),
    flag("--json", help="print each as a line of JSON"),
    argument("--container-id", type=not_kept("a container"), help=SUPPRESS),
    argument("--source", type=not_kept("the source of a line"), help=SUPPRESS),
    argument("--stdtype", type=not_kept("whether a line was an error's"), help=SUPPRESS),
)  # fmt: skip
CONFIG = argument(
    "--config",
    action="append",
    default=[],
    metavar="KEY=VALUE",
    dest="overrides",
    help="change its configuration, such as searcher.max_length.epochs=12",
)
TEMPLATE = argument("--template", metavar="NAME", help="merge the YAML over this template")
DESCRIPTIONS = (
    flag("--metrics", help="with every value of every metric"),
    one_of(
        *AS_DATA.arguments,
        argument("--outdir", metavar="FOLDER", help="write the tables as CSV files there"),
    ),
)
WORKLOADS = (
    argument("--limit", type=whole, metavar="N", help="how many workloads (default: all)"),
    *_ROWS[1:],
)
OUTPUT = argument(
    "-o", "--output-dir", metavar="FOLDER", help="where to (default: a folder of its own here)"
)
COPIED = (OUTPUT, flag("-q", "--quiet", help="print only where to"))
BY_METRIC = (
    argument("--sort-by", metavar="METRIC", help="by this validation metric"),
    argument("--smaller-is-better", type=yes_or_no, metavar="BOOL", help="of that metric"),
)

STORAGE = argument(
    "--checkpoint-storage",
    type=folder,
    metavar="FOLDER",
    help="save checkpoints there, instead of where the configuration has it",
)
