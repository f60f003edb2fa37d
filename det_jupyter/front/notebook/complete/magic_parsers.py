"""Parsers of `%det_experiment`, `%%det_experiment` and `%det`; magics and completion use them."""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.front.verbs.arguments import (
    FOLLOW_LINKS,
    NUMBERS,
    QUEUE_ANYWAY,
    STORAGE,
    at_least_one,
    folder,
    positive,
    whole,
)
from det_jupyter.front.verbs.grammar import (
    LineParser,
    Verb,
    VerbGroup,
    add_arguments,
    argument,
    flag,
    make_parser,
)
from det_jupyter.front.verbs.table_experiments import MEMBERS, OF_EXPERIMENTS
from det_jupyter.front.verbs.table_others import OF_DET, OTHERS

# Verbs that only the shell has, and what to use instead.
NOT_IN_NOTEBOOKS = {
    "master": "`!det master status` asks in a shell",
    "support-bundle": "`!det support-bundle` makes one in a shell",
    "tensorboard": "`det_jupyter.experiment(ID).tensorboard().show()` does it in a notebook",
    "version": "`det_jupyter.__version__` has it",
}
NO_CREATE = {
    "create": (
        "put `%%det_experiment --context DIR` above the configuration in a cell, or call "
        '`det_jupyter.submit(None, "config.yaml", context="DIR")`'
    ),
}

# Options of the cell magic that submits an experiment.
_CELL = (
    argument("--name", help="name of the experiment, instead of the YAML's"),
    argument("--slots", type=whole, metavar="N", help="resources.slots_per_trial"),
    argument("--var", default="experiment", help="variable for the handle (default: experiment)"),
    flag("--wait", help="block until it has ended"),
    flag("--dry-run", help="check and show what would travel; submit nothing"),
    argument("--template", metavar="NAME", help="merge the YAML over this template"),
    STORAGE,
    argument(
        "--local",
        nargs="?",
        type=at_least_one,
        const=5,
        metavar="N",
        help="train N batches (5) in this kernel; submit nothing",
    ),
    flag("--preview", help="show what the search would train; submit nothing"),
    flag("--estimate", help="the same with memory and time of a batch, measured on its slots"),
    argument(
        "--seconds-per-batch", type=positive, metavar="X", help="seconds a batch, for --preview"
    ),
    argument(
        "--context",
        type=folder,
        metavar="DIR",
        help="let the ranks work in a copy of this folder",
    ),
    argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH",
        help="add a file or folder to that copy",
    ),
    FOLLOW_LINKS,
    flag("--allow-large", help="send more than 1 GiB of captured data"),
    QUEUE_ANYWAY,
)

EXPERIMENT = VerbGroup(
    name="%det_experiment",
    help="See and steer experiments; as a cell magic (%%det_experiment) submit one.",
    default="list",
    absent=OF_EXPERIMENTS | NO_CREATE,
    members=MEMBERS,
    examples="""examples:
  %%det_experiment --slots 2          submit the YAML below it
  %%det_experiment --local            a few batches right here, for prints and breakpoints
  %%det_experiment --preview          what the search below it would train
  %%det_experiment --estimate         and how much memory and time its trials need
  %%det_experiment --context src      its ranks work in a copy of the folder src
  %%det_script train.py               keep the cell as a file of that copy
  %det_experiment list                everything that runs or ran
  %det_experiment list wide --state running,queued --since 2d
  %det_experiment list --label good --sort metric
  %det_experiment show 7              the live view of experiment 7
  %det_experiment trials 7            its trials, best first
  %det_experiment compare 3 7 12      curves, results, configuration and code side by side
  %det_experiment logs 7 --rank 1     what rank 1 printed
  %det_experiment logs 7 --follow --level error --since 10m
  %det_experiment export 7 --to a.csv  its metrics as a table
  %det_experiment change 7 --max-trials 50 --max-length "{epochs: 12}"
  %det_experiment archive 3 5-7       hide these from lists
  %det_experiment why 7               why it does not run, and what would start it
  %det_experiment diagnose 7          what limits it, and what helps
  %det_experiment set 7 --name "wide nets"   another name
  %det_experiment label add 7 good    find it by this word
  %det_experiment set 7 --priority 10  before others, while it waits or runs
  %%det_experiment fork 7             the same with the changes in the YAML below it
  %det_experiment ? searcher.divisor  what a key of the configuration means""",
)  # fmt: skip

# Verbs that take YAML in a cell: `%%det_experiment fork 7`.
CELL_VERBS = [
    verb.name for verb in EXPERIMENT.members if isinstance(verb, Verb) and verb.takes_text
]

DET = VerbGroup(
    name="%det",
    help="Experiments, slots, queues and pools; templates of configurations.",
    metavar="WHAT",
    absent=OF_DET | NOT_IN_NOTEBOOKS,
    members=(
        VerbGroup(
            name="experiment",
            aliases=("e",),
            help="see and steer experiments, as %%det_experiment does",
            default=EXPERIMENT.default,
            absent=EXPERIMENT.absent,
            members=MEMBERS,
        ),
        *OTHERS,
    ),
    examples="""examples:
  %det slots                          who is on which slot
  %det why 9                          why trial 9 does not run, and what would start it
  %det queue                          who waits for what, in order
  %det e pause 7                      the same as %det_experiment pause 7
  %det trial profile 9 --steps 10 --ranks 0,1   a trace of torch.profiler for each rank
  %det trial set 9 --lr 0.01          another learning rate while it trains
  %det job move 5 --ahead-of 3        let experiment 5 go first
  %det slot disable left 0 1 --drain  give slots 0 and 1 of agent left out no more
  %%det pool set                      divide the agents into the pools in the YAML below it
  %%det template set digits           keep the YAML below it as the template `digits`
  %%det_experiment --template digits  lay the YAML below it over the template""",
)  # fmt: skip

_CELL_HELP = """%%det_experiment [options]
<experiment configuration, YAML>

Runs the trial that the configuration's `entrypoint` names. The cell returns at once; the handle
it returns is also put into a variable (--var)."""


class MagicParser(LineParser):
    """The parser of a magic's line, in which IPython replaces `{expression}` by its value."""

    reader = NOTEBOOK

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            hint = _number_hint(arg_string) if action.type in NUMBERS else ""
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None


def _number_hint(text: str) -> str:
    """Return the end of the error for an expression in place of a number.

    >>> _number_hint("w.id"), _number_hint("w"), _number_hint("{w.id}"), _number_hint("7a")
    ('; write {w.id}', '; write {w.id}', '; w.id is not defined here', '')
    """
    if text.startswith("{") and text.endswith("}"):
        return f"; {text[1:-1]} is not defined here"
    if not all(part.isidentifier() for part in text.split(".")):
        return ""
    return f"; write {{{text if '.' in text else f'{text}.id'}}}"


def cell_parser() -> LineParser:
    """Return the parser of `%%det_experiment`'s first line."""
    parser = MagicParser(
        prog="%%det_experiment",
        description=_CELL_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=argparse.SUPPRESS,
    )
    add_arguments(parser, _CELL)
    return parser


@cache
def line_parser() -> LineParser:
    """Return the parser of `%det_experiment`."""
    parser = make_parser(EXPERIMENT, MagicParser)
    parser.epilog = f"{EXPERIMENT.examples}\n\nas a cell magic: {cell_parser().format_help()}"
    return parser


@cache
def det_parser() -> LineParser:
    """Return the parser of `%det`."""
    return make_parser(DET, MagicParser)
