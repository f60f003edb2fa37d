"""The options of `%det`: templates, slots, agents, tasks, jobs, pools, the queue, and why."""

from __future__ import annotations

import argparse
from typing import Any

from det_jupyter.verbs.arguments import LineParser, experiment_number, number_hint, positive

EPILOG = """examples:
  %det slots                          who is on which slot
  %det why 9                          why trial 9 does not run, and what would start it
  %det queue                          who waits for what, in order
  %det job move 5 --ahead-of 3        let experiment 5 go first
  %det slot disable left 0 1 --drain  give slots 0 and 1 of agent left out no more
  %%det pool set                      divide the agents into the pools in the YAML below it
  %%det template set digits           keep the YAML below it as the template `digits`
  %%det_experiment --template digits  lay the YAML below it over the template"""
OPERATIONS = ("priority", "weight", "resource-pool", "ahead-of", "behind-of")


def det_parser() -> argparse.ArgumentParser:
    """Return the parser of `%det`."""
    parser = LineParser(
        prog="%det",
        description="Slots, queues and pools; templates of configurations.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    nouns = parser.add_subparsers(dest="noun", metavar="WHAT", required=True)
    _add_slot(nouns)
    _add_agent(nouns)
    _add_task(nouns)
    _add_job(nouns)
    _add_pool(nouns)
    queue = nouns.add_parser("queue", help="who waits for slots, in order, and for what")
    queue.add_argument("-a", "--all", action="store_true", help="the whole queue")
    why = nouns.add_parser("why", help="why a trial does not run, and what would start it")
    what = why.add_mutually_exclusive_group(required=True)
    what.add_argument("trial", nargs="?", type=_trial_number, help="number of the trial")
    what.add_argument("--experiment", type=experiment_number, metavar="ID", help="its next trial")
    _add_template(nouns)
    return parser


def _trial_number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected the number of a trial, or --experiment ID{number_hint(text)}"
        )
    return int(text)


def _noun(nouns: Any, name: str, *aliases: str, help_text: str) -> Any:
    """Return the verbs of a thing; `list` is what is meant without one."""
    parser: LineParser = nouns.add_parser(name, aliases=list(aliases), help=help_text)
    parser.default_verb = "list"
    parser.set_defaults(noun=name)
    return parser.add_subparsers(dest="verb", metavar="VERB", required=True)


def _listing(verbs: Any, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser("list", aliases=["ls"], help=help_text)
    parser.add_argument("-a", "--all", action="store_true", help="all rows, however many")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values")
    form.add_argument("--json", action="store_true", help="JSON")
    return parser


def _add_slot(nouns: Any) -> None:
    ledger = nouns.add_parser("slots", help="who is on which slot, agent by agent")
    ledger.add_argument("-a", "--all", action="store_true", help="every slot, however many")
    verbs = _noun(nouns, "slot", "s", help_text="slots as a table; enable or disable some")
    _listing(verbs, "a row for each slot")
    for verb, text in (("enable", "give slots out again"), ("disable", "give slots out no more")):
        parser = verbs.add_parser(verb, help=text)
        _with_agent(parser)
        parser.add_argument("slots", nargs="*", type=int, metavar="SLOT", help="all if none")
        if verb == "disable":
            _with_drain(parser)


def _add_agent(nouns: Any) -> None:
    verbs = _noun(nouns, "agent", "a", help_text="the computers, or simulated ones, with slots")
    _listing(verbs, "a row for each agent")
    for verb, text in (
        ("enable", "give all its slots out again"),
        ("disable", "give its slots out no more; what runs there is asked to leave"),
    ):
        parser = verbs.add_parser(verb, help=text)
        parser.add_argument("agent", nargs="?", help="name of the agent")
        parser.add_argument("--all", action="store_true", help="all agents")
        if verb == "disable":
            _with_drain(parser)


def _add_task(nouns: Any) -> None:
    verbs = _noun(nouns, "task", help_text="trials that run or wait")
    _listing(verbs, "a row for each trial that holds slots or waits for them")


def _add_job(nouns: Any) -> None:
    verbs = _noun(nouns, "job", "j", help_text="experiments in the queue; change their order")
    listing = _listing(verbs, "a row for each experiment that is not over")
    listing.add_argument("-p", "--pool", "--resource-pool", metavar="POOL", help="only this one")
    move = verbs.add_parser("move", help="put an experiment ahead of another one, or behind it")
    _with_id(move)
    _add_place(move.add_mutually_exclusive_group(required=True))
    update = verbs.add_parser("update", help="change an experiment's place or share")
    _with_id(update)
    update.add_argument(
        "--priority", "-p", type=int, metavar="N", help="1 to 99, lower goes first"
    )
    update.add_argument("--weight", "-w", type=positive, metavar="W", help="under fair share")
    update.add_argument("--resource-pool", "--pool", metavar="NAME", help="wait in this pool")
    _add_place(update.add_mutually_exclusive_group())
    batch = verbs.add_parser("update-batch", help="change several: 3.priority=10 5.weight=2")
    batch.add_argument("operations", nargs="+", metavar="ID.OPERATION=VALUE",
                       help=", ".join(OPERATIONS))  # fmt: skip


def _add_place(group: Any) -> None:
    group.add_argument(
        "--ahead-of", type=experiment_number, metavar="ID", help="right ahead of it"
    )
    group.add_argument(
        "--behind", "--behind-of", type=experiment_number, metavar="ID", help="right behind it"
    )


def _add_pool(nouns: Any) -> None:
    verbs = _noun(nouns, "pool", "rp", "resource-pool", help_text="how the agents are divided")
    _listing(verbs, "a row for each pool")
    setting = verbs.add_parser("set", help="have the pools of the cell's YAML, or a file's")
    setting.add_argument("file", nargs="?", help="YAML; in a cell (%%%%det) the cell is meant")


def _add_template(nouns: Any) -> None:
    verbs = _noun(nouns, "template", "tpl", help_text="parts of configurations")
    listing = verbs.add_parser("list", aliases=["ls"], help="list all templates")
    listing.add_argument(
        "-d", "--detail", "--details", action="store_true", help="with what is in them"
    )
    _with_name(verbs.add_parser("show", aliases=["describe"], help="print a template"))
    setting = verbs.add_parser("set", help="keep the cell's YAML, or a file's, as a template")
    _with_name(setting)
    setting.add_argument("file", nargs="?", help="YAML; in a cell (%%%%det) the cell is meant")
    _with_name(verbs.add_parser("delete", aliases=["remove", "rm"], help="forget a template"))


def _with_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the template")


def _with_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", type=experiment_number, help="number of the experiment")


def _with_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", help="name of the agent")


def _with_drain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drain", action="store_true", help="let what runs there finish first")
