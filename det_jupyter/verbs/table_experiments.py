"""The verbs about experiments: those of `%det_experiment`, and of `det experiment` in a shell."""

from __future__ import annotations

from det_jupyter.verbs.arguments import (
    BEST,
    COMPARED,
    CONFIG,
    CONFIG_FILE,
    DESCRIBED,
    DESCRIPTION,
    DESCRIPTIONS,
    DIAGNOSIS,
    EXPORT,
    FILTERS,
    FOLDER,
    ID,
    IDS,
    KEY,
    LABELS,
    LIMITS_OF_A_SEARCH,
    LOG_FILTERS,
    MAX_SLOTS,
    OF_BEST,
    OUTPUT,
    POLLING,
    POOL,
    PRIORITY,
    QUEUE_ANYWAY,
    RETENTION,
    SOURCE,
    TABLE,
    TITLE,
    WEIGHT,
    YES,
    value,
)
from det_jupyter.verbs.grammar import FunctionsOf, Group, Verb
from det_jupyter.verbs.kinds import limit, positive, whole

checkpoints = FunctionsOf("det_jupyter.verbs.checkpoints")
describing = FunctionsOf("det_jupyter.verbs.describing")
ending = FunctionsOf("det_jupyter.verbs.ending")
experiments = FunctionsOf("det_jupyter.verbs.experiments")
finding = FunctionsOf("det_jupyter.verbs.finding")
life = FunctionsOf("det_jupyter.verbs.life")
logs = FunctionsOf("det_jupyter.verbs.logs")
steering = FunctionsOf("det_jupyter.verbs.steering")
taking_out = FunctionsOf("det_jupyter.verbs.taking_out")

_LABEL = Group(
    name="label",
    help="words to find it by",
    members=(
        Verb("add", "give it labels", steering.add_labels, (ID, LABELS)),
        Verb("remove", "take labels away from it", steering.remove_labels, (ID, LABELS),
             aliases=("rm",)),
    ),
)  # fmt: skip

_SET = Group(
    name="set",
    help="change its name, description, priority, weight, limit or pool",
    default="",
    members=(
        Verb("", "change its name, description, priority, weight, limit or pool",
             steering.set_values,
             (ID, TITLE, DESCRIPTION, PRIORITY, WEIGHT, MAX_SLOTS, POOL)),
        Verb("name", "another name", steering.set_value, (ID, value("value", str, "NAME"))),
        Verb("description", "what it is about, or what came out", steering.set_value,
             (ID, value("value", str, "TEXT"))),
        Verb("priority", "1 to 99, lower goes first", steering.set_value,
             (ID, value("value", whole, "N"))),
        Verb("weight", "its share, under fair share", steering.set_value,
             (ID, value("value", positive, "W"))),
        Verb("max-slots", "most slots of all its trials, or none", steering.set_value,
             (ID, value("value", limit, "N"))),
        Verb("resource-pool", "the pool that it waits in", steering.set_value,
             (ID, value("value", str, "POOL")), aliases=("pool",)),
        Verb("gc-policy", "keep its best checkpoints, delete others",
             steering.set_retention, (ID, *RETENTION, YES)),
    ),
)  # fmt: skip

MEMBERS: tuple[Verb | Group, ...] = (
    Verb("list", "list experiments, newest first", finding.list_experiments, FILTERS,
         aliases=("ls",)),
    Verb("show", "show the live view of an experiment", experiments.show, (ID,)),
    Verb("describe", "print tables of it, its trials and what they did", describing.describe,
         (DESCRIBED, *DESCRIPTIONS), is_verbatim=True),
    Verb("logs", "print what the ranks printed", logs.show_logs, (ID, *LOG_FILTERS),
         is_verbatim=True),
    Verb("trials", "print its trials, best first", experiments.list_trials, (ID,)),
    Verb("list-trials", "print its trials, oldest first, as a table for programs",
         describing.list_trials, (ID, *TABLE), aliases=("lt",)),
    Verb("list-checkpoints", "print its checkpoints", checkpoints.list_of_experiment,
         (ID, BEST, *TABLE), aliases=("lc",)),
    Verb("wait", "wait until it has ended", ending.wait, (ID, POLLING)),
    Verb("compare", "show how experiments, or trials of one, differ",
         experiments.compare, COMPARED),
    Verb("config", "print its configuration and where it comes from",
         experiments.show_config, (ID,), is_verbatim=True),
    Verb("export", "write its metrics or trials to a file",
         taking_out.export, (ID, *EXPORT)),
    Verb("code", "print the code that it was made with", taking_out.show_code, (ID, FOLDER),
         is_verbatim=True),
    Verb("download", "copy its best checkpoints", checkpoints.download_best,
         (ID, OUTPUT, *OF_BEST)),
    Verb("download-model-def", "copy the code and the folder that it was made with",
         taking_out.download_code, (ID, OUTPUT)),
    Verb("why", "print why it does not run, and what would start it",
         experiments.why, (ID,)),
    Verb("diagnose", "find out what limits it, by running it briefly in several ways",
         experiments.diagnose, (ID, *DIAGNOSIS)),
    Verb("change", "give its search other limits while it runs",
         steering.change_search, (ID, *LIMITS_OF_A_SEARCH)),
    _SET,
    _LABEL,
    Verb("pause", "all ranks save their state and give their slots back",
         life.command, (IDS,)),
    Verb("activate", "go on from where it was paused", life.command, (IDS,),
         aliases=("unpause",), starts_master=True),
    Verb("cancel", "end it after saving its state", life.command, (IDS,)),
    Verb("kill", "end it now", life.command, (IDS,)),
    Verb("archive", "hide it from lists", life.archive, (IDS,)),
    Verb("unarchive", "show it in lists again", life.unarchive, (IDS,)),
    Verb("delete", "delete it with its checkpoints, for ever", life.delete, (IDS, YES)),
    Verb("retention", "keep its best checkpoints, delete others",
         steering.set_retention, (ID, *RETENTION, YES)),
    Verb("continue", "go on with it after its end",
         steering.go_on, (ID, CONFIG, CONFIG_FILE), takes_text=True,
         starts_master=True),
    Verb("fork", "submit it anew, with changes, as another experiment",
         steering.fork, (ID, CONFIG, CONFIG_FILE, SOURCE, QUEUE_ANYWAY), takes_text=True,
         starts_master=True),
    Verb("?", "explain a key of the configuration", experiments.explain_key, (KEY,),
         aliases=("explain",)),
)  # fmt: skip
