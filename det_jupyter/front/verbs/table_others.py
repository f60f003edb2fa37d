"""The verbs about slots, agents, queue, pools, templates, trials and models."""

from __future__ import annotations

from dataclasses import replace

from det_jupyter.front.verbs.arguments import (
    BY_METRIC,
    COPIED,
    DESCRIPTIONS,
    FILE,
    ID,
    LOGS,
    POOL,
    PRIORITY,
    TABLE,
    TEMPLATE,
    TRIAL,
    WEIGHT,
    WORKLOADS,
    YES,
    at_least_one,
    experiment_number,
    folder,
    gpu_or_number,
    key_and_value,
    positive,
    ranks,
    trial_number,
    uuid,
    whole,
    yaml_value,
)
from det_jupyter.front.verbs.grammar import Argument, Lazy, Verb, VerbGroup, argument, flag, one_of
from det_jupyter.front.verbs.table_checkpoints import CHECKPOINT_GROUP
from det_jupyter.front.verbs.table_experiments import NO_RETENTION, PLACES

verbs = Lazy("det_jupyter.front.verbs")
OPERATIONS = ("priority", "weight", "resource-pool", "ahead-of", "behind-of")
_TEMPLATE_NAME = argument("name", help="name of the template")
_AGENT = argument("agent", help="name of the agent")
_AGENT_OR_ALL = (
    argument("agent", nargs="?", help="name of the agent"),
    flag("--all", help="all agents"),
)
_SLOTS = argument("slots", nargs="*", default=[], type=whole, metavar="SLOT", help="all if none")
_DRAIN = flag("--drain", help="let trials there end first")
_DETAIL = flag("-d", "--detail", "--details", help="with their configurations")
_ONLY_POOL = argument("-p", "--pool", "--resource-pool", metavar="POOL", help="only this one")
_NEIGHBOURS = (
    argument("--ahead-of", type=experiment_number, metavar="ID", help="right ahead of it"),
    argument(
        "--behind", "--behind-of", type=experiment_number, metavar="ID", help="right behind it"
    ),
)
_PLACE, _MAYBE_PLACE = one_of(*_NEIGHBOURS, required=True), one_of(*_NEIGHBOURS)


def _empty(each: Argument) -> Argument:
    """Return an option whose default is an empty text."""
    return replace(each, rules=each.rules | {"default": ""})


SLOT_GROUP = VerbGroup(
    name="slot",
    help="list, enable or disable slots",
    aliases=("s",),
    default="list",
    members=(
        Verb(
            "list", "a row for each slot", verbs.cluster_verbs.list_slots, TABLE, aliases=("ls",)
        ),
        Verb("enable", "give slots out again", verbs.cluster_verbs.switch_slots, (_AGENT, _SLOTS)),
        Verb(
            "disable",
            "disable slots: no trial gets them",
            verbs.cluster_verbs.switch_slots,
            (_AGENT, _SLOTS, _DRAIN),
        ),
    ),
)
AGENT_GROUP = VerbGroup(
    name="agent",
    help="the computers, or simulated ones, with slots",
    aliases=("a",),
    default="list",
    members=(
        Verb("list", "a row for each agent", verbs.cluster_verbs.list_agents, TABLE,
             aliases=("ls",)),
        Verb("enable", "enable all its slots",
             verbs.cluster_verbs.switch_agents, _AGENT_OR_ALL),
        Verb("disable", "disable all its slots; trials there are preempted",
             verbs.cluster_verbs.switch_agents, (*_AGENT_OR_ALL, _DRAIN)),
        Verb("add", "let an agent on another computer connect; prints its credentials",
             verbs.cluster_verbs.add_agent,
             (_AGENT,
              argument("--nodes", type=at_least_one, metavar="N",
                       help="N agents, AGENT-0 and so on: one for each node of a job"),
              argument("--address", default="", metavar="HOST",
                       help="this computer, as the other one reaches it"),
              argument("-o", "--output", metavar="FILE",
                       help="write them to a file that only you can read, and print none")),
             starts_master=True),
        Verb("remove", "refuse agents of other computers from now on",
             verbs.cluster_verbs.remove_agents,
             (argument("agents", nargs="+", metavar="AGENT", help="names of agents"),)),
    ),
)  # fmt: skip
_CLUSTER = argument("name", help="name of the cluster")
CLUSTER_GROUP = VerbGroup(
    name="cluster",
    help="clusters whose nodes offer slots",
    default="list",
    members=(
        Verb("list", "a row for each cluster", verbs.joined_clusters.list_clusters, TABLE,
             aliases=("ls",)),
        Verb("add", "let the nodes of a cluster offer slots", verbs.joined_clusters.add_cluster,
             (argument("engine", choices=("ray",), help="what runs the cluster"),
              argument("address", metavar="HOST:PORT", help="its head"),
              argument("--slots", type=gpu_or_number, default="gpu", metavar="gpu|N",
                       help="what a node offers: all its GPUs, or N CPU places"),
              argument("--pool", default="", help="the pool that gets them; made if absent"),
              argument("--name", help="its name, which its agents' names begin with (ray)"),
              argument("--idle-minutes", type=positive, metavar="N",
                       help="give a node back after N minutes without a trial"),
              argument("--python", metavar="FILE", help="interpreter of agents on the nodes"),
              argument("--bridge-python", metavar="FILE",
                       help="interpreter with Ray on this computer"),
              argument("--token-file", metavar="FILE", help="file with the cluster's token"),
              flag("--without-token", help="accept a cluster that requires no token"),
              argument("--master-address", metavar="HOST",
                       help="this computer, as the nodes reach it")),
             starts_master=True),
        Verb("check", "measure the connections to and between other computers",
             verbs.joined_clusters.check,
             (argument("--folder", default="", metavar="DIR",
                       help="also check that all have this folder in common"),
              flag("--json", help="JSON"))),
        Verb("remove", "end a cluster's agents; their trials go on elsewhere",
             verbs.joined_clusters.remove_cluster, (_CLUSTER,)),
    ),
)  # fmt: skip
TASK_GROUP = VerbGroup(
    name="task",
    help="trials that run or wait",
    default="list",
    members=(
        Verb("list", "a row for each trial that holds slots or waits for them",
             verbs.cluster_verbs.list_tasks, TABLE, aliases=("ls",)),
        Verb("logs", "print the output of a trial's ranks", verbs.log_printing.show_trial_logs,
             (TRIAL, *LOGS)),
        Verb("kill", "end a trial now; its experiment goes on", verbs.changing.kill, (TRIAL,)),
    ),
    absent={
        **dict.fromkeys(
            ("create", "config", "fork", "pause", "unpause"),
            "all tasks are trials, which experiments make: see `{det} e --help`",
        ),
        "cleanup-logs": "logs are kept with their experiment; `{det} e delete` deletes both",
    },
)  # fmt: skip
JOB_GROUP = VerbGroup(
    name="job",
    help="experiments in the queue; change their order",
    aliases=("j",),
    default="list",
    members=(
        Verb("list", "a row for each experiment that is not over",
             verbs.cluster_verbs.list_jobs, (*TABLE, _ONLY_POOL), aliases=("ls",)),
        Verb("move", "put an experiment ahead of another one, or behind it",
             verbs.queue_changes.move, (ID, _PLACE)),
        Verb("update", "change an experiment's place or share",
             verbs.queue_changes.update, (ID, PRIORITY, WEIGHT, POOL, _MAYBE_PLACE),
             aliases=("u",)),
        Verb("update-batch", "change several: 3.priority=10 5.weight=2",
             verbs.queue_changes.update_batch,
             (argument("operations", nargs="+", metavar="ID.OPERATION=VALUE",
                       help=", ".join(OPERATIONS)),)),
    ),
)  # fmt: skip
POOL_GROUP = VerbGroup(
    name="pool",
    help="how the agents are divided",
    aliases=("rp", "resource-pool"),
    default="list",
    absent={"bindings": f"{PLACES}; every experiment may wait in every pool"},
    members=(
        Verb("list", "a row for each pool", verbs.cluster_verbs.list_pools, TABLE,
             aliases=("ls",)),
        Verb("set", "replace all pools by those in the cell's YAML or a file",
             verbs.cluster_verbs.set_pools, (FILE,), takes_text=True, starts_master=True),
    ),
)  # fmt: skip
TEMPLATE_GROUP = VerbGroup(
    name="template",
    help="parts of configurations",
    aliases=("tpl",),
    default="list",
    members=(
        Verb("list", "list all templates", verbs.templates.list_templates, (_DETAIL, *TABLE),
             aliases=("ls",)),
        Verb("show", "print a template",
             verbs.templates.show_template, (_TEMPLATE_NAME,), aliases=("describe",)),
        Verb("set", "store the YAML of the cell or a file as a template",
             verbs.templates.set_template, (_TEMPLATE_NAME, FILE), takes_text=True,
             starts_master=True),
        VerbGroup(
            name="set-value",
            help="the same as set, in Determined's words",
            members=(
                Verb("config", "store the YAML of the cell or a file as a template",
                     verbs.templates.set_template, (_TEMPLATE_NAME, FILE), takes_text=True,
                     starts_master=True),
            ),
        ),
        Verb("create", "the same, under a new name",
             verbs.templates.create_template, (_TEMPLATE_NAME, FILE), takes_text=True,
             starts_master=True),
        Verb("delete", "forget a template",
             verbs.templates.delete_template, (_TEMPLATE_NAME,), aliases=("remove", "rm")),
    ),
)  # fmt: skip

ALERT_GROUP = VerbGroup(
    name="alerts",
    help="notifications by Slack, ntfy, a webhook or a command",
    default="list",
    members=(
        Verb("list", "list the latest alerts, and the destinations",
             verbs.alerts.list_alerts, TABLE, aliases=("ls",)),
        Verb("test", "send a test to each destination, or to one",
             verbs.alerts.test_alerts,
             (argument("name", nargs="?", help="name of a destination"),
              argument("--experiment", type=experiment_number, metavar="ID",
                       help="also to those of this experiment")),
             starts_master=True),
    ),
)  # fmt: skip

SLOTS_NOW = Verb(
    "slots", "what runs on each slot, agent by agent", verbs.cluster_verbs.show_slots,
    (flag("-a", "--all", help="every slot, however many"),),
)  # fmt: skip
QUEUE = Verb(
    "queue", "which trials wait for slots, in order, and why", verbs.cluster_verbs.show_queue,
    (flag("-a", "--all", help="the whole queue"),),
)  # fmt: skip


_TRIAL_OR_EXPERIMENT = one_of(
    argument("trial", nargs="?", type=trial_number, help="number of the trial"),
    argument("--experiment", type=experiment_number, metavar="ID", help="its next trial"),
    required=True,
)
_PROFILE = (
    argument("--steps", type=at_least_one, default=10, metavar="N", help="batches to record (10)"),
    argument("--ranks", type=ranks, default=[0], metavar="R,R", help="on which ranks (0)"),
    flag("--with-stack", help="with the Python stacks of the calls"),
)
_LIVE_CHANGES = (
    argument("--lr", type=positive, metavar="LR", help="the learning rate from now on"),
    argument("--lr-factor", type=positive, metavar="F",
             help="multiplies all learning rates instead"),
    argument("--optimizer", type=whole, metavar="N", help="only of optimizer N, from 0"),
    argument("--min-validation-period", type=yaml_value, metavar="LENGTH",
             help='such as "{batches: 50}"'),
)  # fmt: skip
_SECONDS_PER_BATCH = argument(
    "--seconds-per-batch", type=positive, metavar="X", help="seconds that a batch takes"
)
_OF_TRIAL = one_of(
    flag("--best", help="by the searcher's metric (default)"),
    flag("--latest", help="the newest"),
    argument("--uuid", metavar="UUID", help="this one"),
)

TRIAL_GROUP = VerbGroup(
    name="trial",
    help="see, change or profile a trial",
    aliases=("t",),
    members=(
        Verb("describe", "print tables of it and of what it did",
             verbs.describing.describe_trial,
             (TRIAL, *DESCRIPTIONS, *WORKLOADS,
              flag("--metrics-summary", help="the last value of each"))),
        Verb("logs", "print the output of its ranks", verbs.log_printing.show_trial_logs,
             (TRIAL, *LOGS)),
        Verb("download", "copy a checkpoint of it", verbs.checkpoints.download_of_trial,
             (TRIAL, *COPIED, _OF_TRIAL, *BY_METRIC)),
        Verb("kill", "end it now; its experiment goes on", verbs.changing.kill, (TRIAL,)),
        Verb("profile", "record some of its batches with torch.profiler",
             verbs.changing.profile, (TRIAL, *_PROFILE)),
        VerbGroup(
            name="set",
            help="change its learning rate, validation period or priority",
            default="",
            absent=NO_RETENTION,
            members=(
                Verb("", "change its learning rate, validation period or priority",
                     verbs.changing.change, (TRIAL, *_LIVE_CHANGES, PRIORITY)),
            ),
        ),
    ),
)  # fmt: skip
_MODEL = argument("model", metavar="NAME", help="name of the model")
_VERSION = argument(
    "--version", metavar="VERSION", help="number or alias of the version (default: the newest)"
)
_ALIAS = argument("alias", help="such as production")
_NOTES = argument("--notes", metavar="TEXT", help="longer text")
_METADATA = argument(
    "--metadata", type=key_and_value, action="append", default=[], metavar="KEY=VALUE",
    help="a value to store, as YAML; may be repeated",
)  # fmt: skip
_LABEL = argument("--label", action="append", default=[], metavar="LABEL", help="a label")
_MODEL_DESCRIPTION = argument("--description", metavar="TEXT", help="purpose of the model")
_OF_VERSION = (
    argument("--comment", metavar="TEXT", help="the difference from other versions, in a line"),
    argument("--name", dest="title", metavar="NAME", help="name of the version, or of the model"),
)
MODEL_GROUP = VerbGroup(
    name="model",
    help="the registry of models: names and versions of checkpoints",
    aliases=("m",),
    default="list",
    absent={
        "move": "there are no workspaces here: labels find models; `{det} model edit NAME --name "
        "OTHER` renames one",
    },
    members=(
        Verb("list", "a row for each model", verbs.models.list_models,
             (argument("text", nargs="*", help="words of name or description"),
              argument("--label", action="append", default=[], metavar="LABEL",
                       help="with this label; of several, all"),
              flag("--archived", help="archived ones, too"), *TABLE),
             aliases=("ls",)),
        Verb("create", "create a model", verbs.models.create,
             (_MODEL,
              _empty(_MODEL_DESCRIPTION), _empty(_NOTES), _LABEL, _METADATA),
             starts_master=True),
        Verb("describe", "print a model, or one of its versions", verbs.models.describe,
             (_MODEL, replace(_VERSION, rules=_VERSION.rules | {"help": "only this version"}),
              flag("--json", help="JSON"))),
        Verb("list-versions", "a row for each version of a model", verbs.models.list_versions,
             (_MODEL, *TABLE)),
        Verb("register-version", "make a checkpoint the next version", verbs.models.register,
             (_MODEL,
              one_of(argument("uuid", nargs="?", type=uuid, metavar="UUID",
                              help="name of the checkpoint"),
                     argument("--experiment", type=experiment_number, metavar="ID",
                              help="the best checkpoint of this experiment"),
                     required=True),
              *map(_empty, (*_OF_VERSION, _NOTES)), _LABEL, _METADATA,
              argument("--alias", action="append", default=[], metavar="ALIAS",
                       help="an alias for the version, such as production"))),
        Verb("alias", "give an alias to a version, and take it from another",
             verbs.models.set_alias,
             (_MODEL, _ALIAS,
              argument("version", nargs="?", help="number or alias (default: the newest)"))),
        Verb("unalias", "remove an alias", verbs.models.remove_alias, (_MODEL, _ALIAS)),
        Verb("edit", "change a model, or one of its versions", verbs.models.edit,
             (_MODEL,
              argument("--version", metavar="VERSION", help="change this version"),
              _MODEL_DESCRIPTION, *_OF_VERSION, _NOTES,
              argument("--add-label", action="append", default=[], metavar="LABEL",
                       help="a label"),
              argument("--remove-label", action="append", default=[], metavar="LABEL",
                       help="a label to remove"),
              _METADATA,
              argument("--remove-metadata", action="append", default=[], metavar="KEY",
                       help="a value to remove"))),
        Verb("archive", "hide a model from lists", verbs.models.archive, (_MODEL,)),
        Verb("unarchive", "show a model in lists again", verbs.models.archive, (_MODEL,)),
        Verb("download", "copy the checkpoint of a version", verbs.models.download,
             (_MODEL, _VERSION, *COPIED)),
        Verb("push", "write a version for others", verbs.models.push,
             (_MODEL, _VERSION,
              argument("--to", required=True, type=folder, metavar="hf|mlflow|FOLDER",
                       help="a folder in Hugging Face's layout, MLflow's registry, or a folder "
                            "with the checkpoint (./hf: one of that name)"),
              argument("-o", "--output-dir", type=folder, metavar="FOLDER",
                       help="with hf: the folder, empty or new (default: NAME-VERSION here)"),
              argument("--tracking-uri", metavar="URI",
                       help="with mlflow: its address (default: $MLFLOW_TRACKING_URI)"),
              flag("--safetensors", help="the weights alone"))),
        Verb("delete", "delete a model or a version; checkpoints stay",
             verbs.models.delete,
             (_MODEL, argument("--version", metavar="VERSION", help="only this version"), YES),
             aliases=("rm",)),
    ),
)  # fmt: skip
WHY = Verb(
    "why", "why a trial does not run, and what would start it",
    verbs.showing.why_trial, (_TRIAL_OR_EXPERIMENT,),
)  # fmt: skip
PREVIEW = Verb(
    "preview-search", "what the search of a configuration would train; submits nothing",
    verbs.search_preview.preview, (FILE, TEMPLATE, _SECONDS_PER_BATCH),
    takes_text=True, starts_master=True,
)  # fmt: skip
DISK = Verb(
    "disk", "show what uses the disks; free what nothing refers to",
    verbs.disk_verbs.disk,
    (*TABLE, flag("--free", help="delete what nothing refers to"), YES),
)  # fmt: skip

# All verbs except those about experiments.
DOCS = Verb(
    "docs",
    "the documentation, without a network",
    verbs.docs_pages.show,
    (argument("topic", nargs="?", help="a page, such as training; without one, what there is"),),
    aliases=("help",),
)
OTHERS: tuple[Verb | VerbGroup, ...] = (
    SLOTS_NOW,
    SLOT_GROUP,
    AGENT_GROUP,
    CLUSTER_GROUP,
    TASK_GROUP,
    TRIAL_GROUP,
    CHECKPOINT_GROUP,
    MODEL_GROUP,
    JOB_GROUP,
    POOL_GROUP,
    QUEUE,
    WHY,
    DISK,
    TEMPLATE_GROUP,
    ALERT_GROUP,
    PREVIEW,
    DOCS,
)

# Verbs of Determined's command that are missing here, and what to do instead.
_TASKS = "JupyterLab and your terminal run beside the master, not on it"
_USER = "there is one user: you"
_RESOURCES = "`{det} slots` shows what runs on each slot"
_NO_POLICIES = "there is one user, so configurations need no policies: a template holds defaults"

OF_DET = {
    **dict.fromkeys(
        ("rbac", "role", "user-group", "ug", "sso", "oauth", "auth", "token", "tkn", "remote"),
        _USER,
    ),
    **dict.fromkeys(("config-policies", "cp"), _NO_POLICIES),
    "dev": (
        "`{cli} master info` and `{det} slots` show what runs, `{cli} support-bundle` collects it"
    ),
    "run": "`{det} e` has experiments, `{det} t` their trials",
    "workspace": PLACES,
    "w": PLACES,
    "project": PLACES,
    "p": PLACES,
    "user": _USER,
    "u": _USER,
    "notebook": _TASKS,
    "shell": _TASKS,
    "command": _TASKS,
    "cmd": _TASKS,
    "deploy": "the master starts when something needs it, or by `{cli} master start`",
    "d": "the master starts when something needs it, or by `{cli} master start`",
    "resources": _RESOURCES,
    "res": _RESOURCES,
}
