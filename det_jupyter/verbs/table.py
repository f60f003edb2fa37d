"""All verbs: their words, their help, what they call, and the arguments that they take.

EXPERIMENT has the verbs of `%det_experiment`, DET those of `%det`. A front end makes its parsers
from them (grammar.py), and completion reads the parsers.
"""

from __future__ import annotations

import argparse

from det_jupyter.verbs import (
    cluster,
    experiments,
    finding,
    life,
    logs,
    queue_changes,
    steering,
    taking_out,
    templates,
    trials,
)
from det_jupyter.verbs.arguments import (
    AGENT,
    AGENT_OR_ALL,
    CELL,
    COMPARED,
    CONFIG,
    DESCRIPTION,
    DETAIL,
    DIAGNOSIS,
    DRAIN,
    EXPORT,
    FILE,
    FILTERS,
    FOLDER,
    ID,
    IDS,
    KEY,
    LABELS,
    LIMITS_OF_A_SEARCH,
    LIVE_CHANGES,
    LOG_FILTERS,
    MAX_SLOTS,
    MAYBE_PLACE,
    ONLY_POOL,
    PLACE,
    POOL,
    PRIORITY,
    PROFILE,
    QUEUE_ANYWAY,
    RETENTION,
    SLOTS,
    SOURCE,
    TABLE,
    TEMPLATE_NAME,
    TITLE,
    TRIAL,
    TRIAL_OR_EXPERIMENT,
    WEIGHT,
    YES,
)
from det_jupyter.verbs.grammar import (
    Group,
    LineParser,
    Verb,
    add_arguments,
    argument,
    flag,
    make_parser,
)

_LABEL = Group(
    name="label",
    help="words to find it by",
    members=(
        Verb("add", "give it labels", steering.add_labels, (ID, LABELS)),
        Verb("remove", "take labels away from it", steering.remove_labels, (ID, LABELS),
             aliases=("rm",)),
    ),
)  # fmt: skip

EXPERIMENT = Group(
    name="%det_experiment",
    help="See and steer experiments; as a cell magic (%%det_experiment) submit one.",
    default="list",
    members=(
        Verb("list", "list experiments, newest first", finding.list_experiments, FILTERS,
             aliases=("ls",)),
        Verb("show", "show the live view of an experiment", experiments.show, (ID,)),
        Verb("logs", "print what the ranks printed", logs.show_logs, (ID, *LOG_FILTERS)),
        Verb("trials", "print its trials, best first", experiments.list_trials, (ID,)),
        Verb("compare", "show how experiments, or trials of one, differ",
             experiments.compare, COMPARED),
        Verb("config", "print its configuration and where it comes from",
             experiments.show_config, (ID,)),
        Verb("export", "write its metrics or trials to a file",
             taking_out.export, (ID, *EXPORT)),
        Verb("code", "print the code that it was made with", taking_out.show_code, (ID, FOLDER)),
        Verb("why", "print why it does not run, and what would start it",
             experiments.why, (ID,)),
        Verb("diagnose", "find out what limits it, by running it briefly in several ways",
             experiments.diagnose, (ID, *DIAGNOSIS)),
        Verb("change", "give its search other limits while it runs",
             steering.change_search, (ID, *LIMITS_OF_A_SEARCH)),
        Verb("set", "change its name, description, priority, weight, limit or pool",
             steering.set_values,
             (ID, TITLE, DESCRIPTION, PRIORITY, WEIGHT, MAX_SLOTS, POOL)),
        _LABEL,
        Verb("pause", "all ranks save their state and give their slots back",
             life.command, (IDS,)),
        Verb("activate", "go on from where it was paused", life.command, (IDS,)),
        Verb("cancel", "end it after saving its state", life.command, (IDS,)),
        Verb("kill", "end it now", life.command, (IDS,)),
        Verb("archive", "hide it from lists", life.archive, (IDS,)),
        Verb("unarchive", "show it in lists again", life.unarchive, (IDS,)),
        Verb("delete", "delete it with its checkpoints, for ever", life.delete, (IDS, YES)),
        Verb("retention", "keep its best checkpoints, delete others",
             steering.set_retention, (ID, *RETENTION, YES)),
        Verb("continue", "go on with it after its end",
             steering.go_on, (ID, CONFIG), takes_text=True),
        Verb("fork", "submit it anew, with changes, as another experiment",
             steering.fork, (ID, CONFIG, SOURCE, QUEUE_ANYWAY), takes_text=True),
        Verb("?", "explain a key of the configuration", experiments.explain_key, (KEY,)),
    ),
    examples="""examples:
  %%det_experiment --slots 2          submit the YAML below it
  %%det_experiment --local            a few batches right here, for prints and breakpoints
  %%det_experiment --preview          what the search below it would train
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

# Those that take the YAML of a cell: `%%det_experiment fork 7`.
CELL_VERBS = [
    verb.name for verb in EXPERIMENT.members if isinstance(verb, Verb) and verb.takes_text
]

_SLOT = Group(
    name="slot",
    help="slots as a table; enable or disable some",
    aliases=("s",),
    default="list",
    members=(
        Verb("list", "a row for each slot", cluster.list_slots, TABLE, aliases=("ls",)),
        Verb("enable", "give slots out again", cluster.switch_slots, (AGENT, SLOTS)),
        Verb("disable", "give slots out no more", cluster.switch_slots, (AGENT, SLOTS, DRAIN)),
    ),
)
_AGENT = Group(
    name="agent",
    help="the computers, or simulated ones, with slots",
    aliases=("a",),
    default="list",
    members=(
        Verb("list", "a row for each agent", cluster.list_agents, TABLE, aliases=("ls",)),
        Verb("enable", "give all its slots out again", cluster.switch_agents, AGENT_OR_ALL),
        Verb("disable", "give its slots out no more; what runs there is asked to leave",
             cluster.switch_agents, (*AGENT_OR_ALL, DRAIN)),
    ),
)  # fmt: skip
_TASK = Group(
    name="task",
    help="trials that run or wait",
    default="list",
    members=(
        Verb("list", "a row for each trial that holds slots or waits for them",
             cluster.list_tasks, TABLE, aliases=("ls",)),
    ),
)  # fmt: skip
_JOB = Group(
    name="job",
    help="experiments in the queue; change their order",
    aliases=("j",),
    default="list",
    members=(
        Verb("list", "a row for each experiment that is not over",
             cluster.list_jobs, (*TABLE, ONLY_POOL), aliases=("ls",)),
        Verb("move", "put an experiment ahead of another one, or behind it",
             queue_changes.move, (ID, PLACE)),
        Verb("update", "change an experiment's place or share",
             queue_changes.update, (ID, PRIORITY, WEIGHT, POOL, MAYBE_PLACE)),
        Verb("update-batch", "change several: 3.priority=10 5.weight=2",
             queue_changes.update_batch,
             (argument("operations", nargs="+", metavar="ID.OPERATION=VALUE",
                       help=", ".join(queue_changes.OPERATIONS)),)),
    ),
)  # fmt: skip
_TRIAL = Group(
    name="trial",
    help="change or profile a trial that trains",
    members=(
        Verb("profile", "record some of its batches with torch.profiler",
             trials.profile, (TRIAL, *PROFILE)),
        Verb("set", "change its learning rate, validation period or priority",
             trials.change, (TRIAL, *LIVE_CHANGES, PRIORITY)),
    ),
)  # fmt: skip
_POOL = Group(
    name="pool",
    help="how the agents are divided",
    aliases=("rp", "resource-pool"),
    default="list",
    members=(
        Verb("list", "a row for each pool", cluster.list_pools, TABLE, aliases=("ls",)),
        Verb("set", "have the pools of the cell's YAML, or a file's",
             cluster.set_pools, (FILE,), takes_text=True),
    ),
)  # fmt: skip
_TEMPLATE = Group(
    name="template",
    help="parts of configurations",
    aliases=("tpl",),
    default="list",
    members=(
        Verb("list", "list all templates", templates.list_templates, (DETAIL,), aliases=("ls",)),
        Verb("show", "print a template",
             templates.show_template, (TEMPLATE_NAME,), aliases=("describe",)),
        Verb("set", "keep the cell's YAML, or a file's, as a template",
             templates.set_template, (TEMPLATE_NAME, FILE), takes_text=True),
        Verb("delete", "forget a template",
             templates.delete_template, (TEMPLATE_NAME,), aliases=("remove", "rm")),
    ),
)  # fmt: skip

DET = Group(
    name="%det",
    help="Slots, queues and pools; templates of configurations.",
    metavar="WHAT",
    members=(
        Verb("slots", "who is on which slot, agent by agent", cluster.show_slots,
             (flag("-a", "--all", help="every slot, however many"),)),
        _SLOT,
        _AGENT,
        _TASK,
        _TRIAL,
        _JOB,
        _POOL,
        Verb("queue", "who waits for slots, in order, and for what", cluster.show_queue,
             (flag("-a", "--all", help="the whole queue"),)),
        Verb("why", "why a trial does not run, and what would start it",
             experiments.why_trial, (TRIAL_OR_EXPERIMENT,)),
        _TEMPLATE,
    ),
    examples="""examples:
  %det slots                          who is on which slot
  %det why 9                          why trial 9 does not run, and what would start it
  %det queue                          who waits for what, in order
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


def cell_parser() -> LineParser:
    """Return the parser of `%%det_experiment`'s first line."""
    parser = LineParser(
        prog="%%det_experiment",
        description=_CELL_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=argparse.SUPPRESS,
    )
    add_arguments(parser, CELL)
    return parser


def line_parser() -> LineParser:
    """Return the parser of `%det_experiment`."""
    parser = make_parser(EXPERIMENT)
    parser.epilog = f"{EXPERIMENT.examples}\n\nas a cell magic: {cell_parser().format_help()}"
    return parser


def det_parser() -> LineParser:
    """Return the parser of `%det`."""
    return make_parser(DET)
