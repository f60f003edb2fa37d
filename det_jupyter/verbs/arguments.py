"""The arguments that verbs take."""

from __future__ import annotations

from argparse import SUPPRESS
from collections.abc import Callable
from typing import Any

from det_jupyter.verbs.grammar import Argument, argument, flag, one_of
from det_jupyter.verbs.kinds import (
    batches,
    experiment_number,
    experiment_numbers,
    limit,
    not_kept,
    numbers,
    positive,
    ranks,
    trial_number,
    uuid,
    uuids,
    whole,
    yaml_value,
    yes_or_no,
)

# Written here again: to parse a line of a shell takes no messages and no numbers of the master.
SORTS = ("newest", "oldest", "metric")
LEVELS = ("debug", "info", "warning", "error", "critical")
OPERATIONS = ("priority", "weight", "resource-pool", "ahead-of", "behind-of")


_GIVEN = {
    "NAME": "the name",
    "TEXT": "the text",
    "N": "the number",
    "W": "the weight",
    "POOL": "the pool's name",
}


def value(name: str, kind: Callable[[str], Any], metavar: str) -> Argument:
    """Return a positional argument of this kind."""
    return argument(name, type=kind, metavar=metavar, help=_GIVEN[metavar])


ID = argument("id", type=experiment_number, metavar="ID", help="number of the experiment")
IDS = argument("ids", nargs="+", type=experiment_numbers, metavar="ID",
               help="numbers of experiments: 7, or 3 5-7")  # fmt: skip
COMPARED = (
    IDS,
    argument(
        "--trials", nargs="*", type=trial_number, metavar="TRIAL",
        help="these trials of one experiment instead; the best if none is given",
    ),
)  # fmt: skip
TRIAL_OR_EXPERIMENT = one_of(
    argument("trial", nargs="?", type=trial_number, help="number of the trial"),
    argument("--experiment", type=experiment_number, metavar="ID", help="its next trial"),
    required=True,
)
TEMPLATE_NAME = argument("name", help="name of the template")
AGENT = argument("agent", help="name of the agent")
AGENT_OR_ALL = (
    argument("agent", nargs="?", help="name of the agent"),
    flag("--all", help="all agents"),
)
TRIAL = argument("id", type=trial_number, metavar="ID", help="number of the trial")
PROFILE = (
    argument("--steps", type=batches, default=10, metavar="N", help="batches to record (10)"),
    argument("--ranks", type=ranks, default=[0], metavar="R,R", help="on which ranks (0)"),
    flag("--with-stack", help="with the lines of Python that called"),
)
LIVE_CHANGES = (
    argument("--lr", type=positive, metavar="LR", help="the learning rate from now on"),
    argument("--lr-factor", type=positive, metavar="F",
             help="multiplies all learning rates instead"),
    argument("--optimizer", type=whole, metavar="N", help="only of this one, from 0"),
    argument("--min-validation-period", type=yaml_value, metavar="LENGTH",
             help='such as "{batches: 50}"'),
)  # fmt: skip
SLOTS = argument("slots", nargs="*", default=[], type=whole, metavar="SLOT", help="all if none")
FILE = argument("file", nargs="?", help="YAML; in a cell (%%%%det) the cell is meant")
KEY = argument("path", nargs="?", default="", help="such as searcher.divisor")

YES = flag("--yes", "-y", help="do not ask")
DRAIN = flag("--drain", help="let what runs there finish first")
DETAIL = flag("-d", "--detail", "--details", help="with what is in them")
QUEUE_ANYWAY = flag("--queue-anyway", help="submit it though no pool can run it now")
TABLE = (
    flag("-a", "--all", help="all rows, however many"),
    one_of(flag("--csv", help="comma-separated values"), flag("--json", help="JSON")),
)

TITLE = argument("--name", dest="title", metavar="NAME", help="another name")
DESCRIPTION = argument("--description", metavar="TEXT", help="what it is about, or what came out")
LABELS = argument("labels", nargs="+", metavar="LABEL", help="words to find it by")
PRIORITY = argument("--priority", "-p", type=whole, metavar="N", help="1 to 99, lower goes first")
WEIGHT = argument("--weight", "-w", type=positive, metavar="W", help="share, under fair share")
MAX_SLOTS = argument(
    "--max-slots", type=limit, metavar="N", help="most slots of all its trials, or none"
)
POOL = argument("--pool", "--resource-pool", metavar="NAME", help="wait in this pool")
ONLY_POOL = argument("-p", "--pool", "--resource-pool", metavar="POOL", help="only this one")
_NEIGHBOURS = (
    argument("--ahead-of", type=experiment_number, metavar="ID", help="right ahead of it"),
    argument(
        "--behind", "--behind-of", type=experiment_number, metavar="ID", help="right behind it"
    ),
)
PLACE, MAYBE_PLACE = one_of(*_NEIGHBOURS, required=True), one_of(*_NEIGHBOURS)

FILTERS = (
    argument("text", nargs="*", help="words of name, description, labels, notebook or entrypoint"),
    argument("--name", dest="named", default="", metavar="NAME", help="such as digits, or 'dig*'"),
    argument("--label", action="append", metavar="LABEL", help="with this label; of several, all"),
    argument("--notebook", default="", metavar="FILE", help="such as train.ipynb, or '*/old/*'"),
    argument("--state", action="append", default=[], metavar="STATE",
             help="running, queued, paused, completed, error, ...; several: running,queued"),
    argument("--since", metavar="WHEN", help="submitted since: 2026-01-31, or an age such as 2d"),
    argument("--until", metavar="WHEN", help="submitted until then"),
    argument("--sort", choices=SORTS, default="newest", help="metric: the best first"),
    argument("--limit", type=whole, metavar="N", help="how many are listed (default: 50)"),
    argument("--offset", type=whole, default=0, metavar="N", help="leave out the first ones"),
    flag("-a", "--all", help="archived ones too, however many"),
    TABLE[1],
)  # fmt: skip
EXPORT = (
    argument("--to", required=True, metavar="FILE", help="FILE.csv, or FILE.parquet (pyarrow)"),
    argument("--what", choices=("metrics", "trials", "timings", "system"), default="metrics",
             help="every value of every metric (default), a row for each trial, "
                  "where its time went, or what machines and processes did"),
)  # fmt: skip
FOLDER = argument("--to", metavar="FOLDER", help="write files there, instead of printing")
LOGS = (
    argument("--rank", "--rank-id", type=whole, metavar="N", help="only this rank"),
    one_of(
        argument("--tail", type=whole, metavar="N",
                 help="last lines (default: 100, in a shell all)"),
        argument("--head", type=whole, metavar="N", help="first lines"),
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
LOG_FILTERS = (
    argument("--trial", type=whole, metavar="N", dest="trial_id", help="only this trial"),
    *LOGS,
)
LIMITS_OF_A_SEARCH = (
    argument("--max-trials", type=whole, metavar="N", help="number of trials in all"),
    argument(
        "--max-length", type=yaml_value, metavar="LENGTH", help='train longer: "{epochs: 12}"'
    ),
    argument(
        "--max-concurrent", type=whole, metavar="N", help="number of trials that train at once"
    ),
    argument(
        "--hyperparameters", type=yaml_value, metavar="YAML", help="ranges for the trials to come"
    ),
)
DIAGNOSIS = (
    argument("--seconds", type=positive, metavar="S", help="how long each run measures"),
    argument("--rounds", type=whole, metavar="N", help="how often each recipe runs"),
    argument("--recipes", nargs="+", metavar="RECIPE", help="only these, such as replay workers"),
    flag("--keep", help="do not delete its runs"),
)
RETENTION = tuple(
    argument(f"--save-{name}", type=whole, metavar="N", required=True, help=f"number of {kept}")
    for name, kept in (
        ("experiment-best", "the best of all"),
        ("trial-best", "the best of each trial"),
        ("trial-latest", "the latest of each trial"),
    )
)
CONFIG = argument(
    "--config",
    action="append",
    default=[],
    metavar="KEY=VALUE",
    dest="overrides",
    help="change its configuration, such as searcher.max_length.epochs=12",
)
CONFIG_FILE = argument("--config-file", metavar="FILE", help="YAML with changes, under --config")
TEMPLATE = argument("--template", metavar="NAME", help="lay the YAML over this template")
SECONDS_PER_BATCH = argument(
    "--seconds-per-batch", type=positive, metavar="X", help="for the times of the preview"
)
DESCRIBED = argument("ids", type=numbers, metavar="ID", help="its number, or several: 3,5")
DESCRIPTIONS = (
    flag("--metrics", help="with every value of every metric"),
    one_of(
        flag("--csv", help="comma-separated values"),
        flag("--json", help="JSON"),
        argument("--outdir", metavar="FOLDER", help="write the tables as CSV files there"),
    ),
)
BEST = argument("--best", type=whole, metavar="N", help="only the best of those validated")
POLLING = argument("--polling-interval", type=positive, help=SUPPRESS)
OUTPUT = argument(
    "-o", "--output-dir", metavar="FOLDER", help="where to (default: a folder of its own here)"
)
OF_BEST = (
    argument("--top-n", type=whole, default=1, metavar="N", help="how many (1)"),
    argument("--sort-by", metavar="METRIC", help="by this validation metric"),
    argument("--smaller-is-better", type=yes_or_no, metavar="BOOL", help="of that metric"),
)
OF_TRIAL = one_of(
    flag("--best", help="by the searcher's metric (default)"),
    flag("--latest", help="the newest"),
    argument("--uuid", metavar="UUID", help="this one"),
)
UUID = argument("uuid", type=uuid, help="name of the checkpoint")
UUIDS = argument(
    "uuids", type=uuids, nargs="+", metavar="UUID", help="names of checkpoints, or A,B"
)
SOURCE = one_of(
    argument("--trial", type=whole, metavar="N", help="start from its latest checkpoint"),
    argument("--checkpoint", metavar="UUID", help="start from this checkpoint"),
)

STORAGE = argument(
    "--checkpoint-storage",
    metavar="FOLDER",
    help="keep checkpoints there, whatever the configuration says",
)

# Of the cell that submits an experiment.
CELL = (
    argument("--name", help="name of the experiment, instead of the YAML's"),
    argument("--slots", type=whole, metavar="N", help="resources.slots_per_trial"),
    argument("--var", default="experiment", help="variable for the handle (default: experiment)"),
    flag("--wait", help="block until it has ended"),
    flag("--dry-run", help="check and show what would travel; submit nothing"),
    argument("--template", metavar="NAME", help="lay the YAML over this template"),
    STORAGE,
    argument(
        "--local",
        nargs="?",
        type=batches,
        const=5,
        metavar="N",
        help="train N batches (5) right here, in this kernel; submit nothing",
    ),
    flag("--preview", help="show what the search would train; submit nothing"),
    argument("--seconds-per-batch", type=positive, metavar="X", help="for the times of --preview"),
    argument("--context", metavar="DIR", help="have the ranks work in a copy of this folder"),
    argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH",
        help="add a file or folder to that copy",
    ),
    flag("--allow-large", help="send more than 1 GiB of captured data"),
    QUEUE_ANYWAY,
)
