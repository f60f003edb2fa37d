"""The arguments that verbs take."""

from __future__ import annotations

from argparse import SUPPRESS

from det_jupyter.verbs.grammar import argument, flag, one_of
from det_jupyter.verbs.kinds import (
    at_least_one,
    experiment_number,
    experiment_numbers,
    folder,
    not_kept,
    positive,
    trial_number,
    whole,
)

# Written here again: to parse a line of a shell takes no messages of the master.
LEVELS = ("debug", "info", "warning", "error", "critical")

ID = argument("id", type=experiment_number, metavar="ID", help="number of the experiment")
IDS = argument("ids", nargs="+", type=experiment_numbers, metavar="ID",
               help="numbers of experiments: 7, or 3 5-7, or 3,5-7")  # fmt: skip
TRIAL = argument("id", type=trial_number, metavar="ID", help="number of the trial")
FILE = argument("file", nargs="?", help="YAML; in a cell (%%%%det) the cell is meant")

YES = flag("--yes", "-y", help="do not ask")
QUEUE_ANYWAY = flag("--queue-anyway", help="submit it though no pool can run it now")
AS_DATA = one_of(flag("--csv", help="comma-separated values"), flag("--json", help="JSON"))
TABLE = (flag("-a", "--all", help="all rows, however many"), AS_DATA)

TITLE = argument("--name", dest="title", metavar="NAME", help="another name")
PRIORITY = argument("--priority", "-p", type=whole, metavar="N", help="1 to 99, lower goes first")
WEIGHT = argument("--weight", "-w", type=positive, metavar="W", help="share, under fair share")
POOL = argument("--pool", "--resource-pool", metavar="NAME", help="wait in this pool")

LOGS = (
    argument("--rank", "--rank-id", type=whole, metavar="N", help="only this rank"),
    one_of(
        argument("--tail", type=whole, metavar="N",
                 help="last lines (default: 100, in a shell all)"),
        argument("--head", type=at_least_one, metavar="N", help="first lines"),
    ),
    argument("--since", "--timestamp-after", metavar="WHEN",
             help="since 2026-01-31T14:00, or an age such as 10m"),
    argument("--until", "--timestamp-before", metavar="WHEN", help="until then"),
    argument("--level", type=str.lower, choices=LEVELS, help="this level and higher ones"),
    argument("--search", metavar="TEXT", help="with this text; /.../ is a regular expression"),
    argument("--allocation-id", action="append", metavar="ID", help="only of this run: 3.1.2"),
    flag("-f", "--follow", help="wait for more until it has ended"),
    flag("--json", help="a line of JSON for each"),
    argument("--agent-id", type=not_kept("which agent a line comes from"), help=SUPPRESS),
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
TEMPLATE = argument("--template", metavar="NAME", help="lay the YAML over this template")
DESCRIPTIONS = (
    flag("--metrics", help="with every value of every metric"),
    one_of(
        *AS_DATA.arguments,
        argument("--outdir", metavar="FOLDER", help="write the tables as CSV files there"),
    ),
)
OUTPUT = argument(
    "-o", "--output-dir", metavar="FOLDER", help="where to (default: a folder of its own here)"
)

STORAGE = argument(
    "--checkpoint-storage",
    type=folder,
    metavar="FOLDER",
    help="keep checkpoints there, whatever the configuration says",
)
