"""The verbs about slots, agents, tasks, jobs, pools and templates."""

from __future__ import annotations

from det_jupyter.verbs.arguments import FILE, ID, LOGS, POOL, PRIORITY, TABLE, TRIAL, WEIGHT
from det_jupyter.verbs.grammar import FunctionsOf, Group, Verb, argument, flag, one_of
from det_jupyter.verbs.kinds import experiment_number, whole

cluster = FunctionsOf("det_jupyter.verbs.cluster")
logs = FunctionsOf("det_jupyter.verbs.logs")
queue_changes = FunctionsOf("det_jupyter.verbs.queue_changes")
templates = FunctionsOf("det_jupyter.verbs.templates")

OPERATIONS = ("priority", "weight", "resource-pool", "ahead-of", "behind-of")
_TEMPLATE_NAME = argument("name", help="name of the template")
_AGENT = argument("agent", help="name of the agent")
_AGENT_OR_ALL = (
    argument("agent", nargs="?", help="name of the agent"),
    flag("--all", help="all agents"),
)
_SLOTS = argument("slots", nargs="*", default=[], type=whole, metavar="SLOT", help="all if none")
_DRAIN = flag("--drain", help="let what runs there finish first")
_DETAIL = flag("-d", "--detail", "--details", help="with what is in them")
_ONLY_POOL = argument("-p", "--pool", "--resource-pool", metavar="POOL", help="only this one")
_NEIGHBOURS = (
    argument("--ahead-of", type=experiment_number, metavar="ID", help="right ahead of it"),
    argument(
        "--behind", "--behind-of", type=experiment_number, metavar="ID", help="right behind it"
    ),
)
_PLACE, _MAYBE_PLACE = one_of(*_NEIGHBOURS, required=True), one_of(*_NEIGHBOURS)

SLOT_GROUP = Group(
    name="slot",
    help="slots as a table; enable or disable some",
    aliases=("s",),
    default="list",
    members=(
        Verb("list", "a row for each slot", cluster.list_slots, TABLE, aliases=("ls",)),
        Verb("enable", "give slots out again", cluster.switch_slots, (_AGENT, _SLOTS)),
        Verb("disable", "give slots out no more", cluster.switch_slots, (_AGENT, _SLOTS, _DRAIN)),
    ),
)
AGENT_GROUP = Group(
    name="agent",
    help="the computers, or simulated ones, with slots",
    aliases=("a",),
    default="list",
    members=(
        Verb("list", "a row for each agent", cluster.list_agents, TABLE, aliases=("ls",)),
        Verb("enable", "give all its slots out again", cluster.switch_agents, _AGENT_OR_ALL),
        Verb("disable", "give its slots out no more; what runs there is asked to leave",
             cluster.switch_agents, (*_AGENT_OR_ALL, _DRAIN)),
    ),
)  # fmt: skip
TASK_GROUP = Group(
    name="task",
    help="trials that run or wait",
    default="list",
    members=(
        Verb("list", "a row for each trial that holds slots or waits for them",
             cluster.list_tasks, TABLE, aliases=("ls",)),
        Verb("logs", "print what the ranks of a trial printed", logs.show_trial_logs,
             (TRIAL, *LOGS), is_verbatim=True),
    ),
)  # fmt: skip
JOB_GROUP = Group(
    name="job",
    help="experiments in the queue; change their order",
    aliases=("j",),
    default="list",
    members=(
        Verb("list", "a row for each experiment that is not over",
             cluster.list_jobs, (*TABLE, _ONLY_POOL), aliases=("ls",)),
        Verb("move", "put an experiment ahead of another one, or behind it",
             queue_changes.move, (ID, _PLACE)),
        Verb("update", "change an experiment's place or share",
             queue_changes.update, (ID, PRIORITY, WEIGHT, POOL, _MAYBE_PLACE)),
        Verb("update-batch", "change several: 3.priority=10 5.weight=2",
             queue_changes.update_batch,
             (argument("operations", nargs="+", metavar="ID.OPERATION=VALUE",
                       help=", ".join(OPERATIONS)),)),
    ),
)  # fmt: skip
POOL_GROUP = Group(
    name="pool",
    help="how the agents are divided",
    aliases=("rp", "resource-pool"),
    default="list",
    members=(
        Verb("list", "a row for each pool", cluster.list_pools, TABLE, aliases=("ls",)),
        Verb("set", "have the pools of the cell's YAML, or a file's",
             cluster.set_pools, (FILE,), takes_text=True, starts_master=True),
    ),
)  # fmt: skip
TEMPLATE_GROUP = Group(
    name="template",
    help="parts of configurations",
    aliases=("tpl",),
    default="list",
    members=(
        Verb("list", "list all templates", templates.list_templates, (_DETAIL, *TABLE),
             aliases=("ls",)),
        Verb("show", "print a template",
             templates.show_template, (_TEMPLATE_NAME,), aliases=("describe",), is_verbatim=True),
        Verb("set", "keep the cell's YAML, or a file's, as a template",
             templates.set_template, (_TEMPLATE_NAME, FILE), takes_text=True,
             starts_master=True),
        Verb("create", "the same, of a name that is free",
             templates.create_template, (_TEMPLATE_NAME, FILE), takes_text=True,
             starts_master=True),
        Verb("delete", "forget a template",
             templates.delete_template, (_TEMPLATE_NAME,), aliases=("remove", "rm")),
    ),
)  # fmt: skip

SLOTS_NOW = Verb(
    "slots", "who is on which slot, agent by agent", cluster.show_slots,
    (flag("-a", "--all", help="every slot, however many"),),
)  # fmt: skip
QUEUE = Verb(
    "queue", "who waits for slots, in order, and for what", cluster.show_queue,
    (flag("-a", "--all", help="the whole queue"),),
)  # fmt: skip
