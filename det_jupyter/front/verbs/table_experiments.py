"""The verbs about experiments, with their arguments."""

from __future__ import annotations

from argparse import SUPPRESS
from collections.abc import Callable
from typing import Any

from det_jupyter.front.verbs.arguments import (
    AT_ONCE,
    BY_METRIC,
    CONFIG,
    COPIED,
    DESCRIPTIONS,
    ID,
    IDS,
    LOGS,
    OUTPUT,
    PAGE,
    POOL,
    PRIORITY,
    QUEUE_ANYWAY,
    TABLE,
    TITLE,
    WEIGHT,
    YES,
    at_least_one,
    limit,
    number_or_folder,
    positive,
    trial_number,
    whole,
    yaml_value,
)
from det_jupyter.front.verbs.grammar import Argument, Lazy, Verb, VerbGroup, argument, flag, one_of

verbs = Lazy("det_jupyter.front.verbs")
SORTS = ("newest", "oldest", "metric")
_GIVEN = {
    "NAME": "the name",
    "TEXT": "the text",
    "N": "the number",
    "W": "the weight",
    "POOL": "the pool's name",
}


def _to(kind: Callable[[str], Any], metavar: str) -> Argument:
    """Return the argument for the new value of a property."""
    return argument("value", type=kind, metavar=metavar, help=_GIVEN[metavar])


_COMPARED = (
    IDS,
    argument("--trials", nargs="*", type=trial_number, metavar="TRIAL",
             help="these trials of one experiment instead; the best if none is given"),
)  # fmt: skip
_KEY = argument("path", nargs="?", default="", help="such as searcher.divisor")
_DESCRIPTION = argument("--description", metavar="TEXT", help="its purpose or results, as text")
_LABELS = argument("labels", nargs="+", metavar="LABEL", help="words to find it by")
_MAX_SLOTS = argument(
    "--max-slots", type=limit, metavar="N", help="most slots of all its trials, or none"
)
_FILTERS = (
    argument("text", nargs="*", help="words of name, description, labels, notebook or entrypoint"),
    argument("--name", dest="named", default="", metavar="NAME", help="such as digits, or 'dig*'"),
    argument("--label", action="append", metavar="LABEL", help="with this label; of several, all"),
    argument("--notebook", default="", metavar="FILE", help="such as train.ipynb, or '*/old/*'"),
    argument("--state", action="append", default=[], metavar="STATE",
             help="running, queued, paused, completed, error, ...; several: running,queued"),
    argument("--since", metavar="WHEN", help="submitted since: 2026-01-31, or an age such as 2d"),
    argument("--until", metavar="WHEN", help="submitted until then"),
    argument("--sort", choices=SORTS, default="newest", help="metric: the best first"),
    flag("-a", "--all", help="archived ones too, however many"),
    *PAGE,
)  # fmt: skip
_EXPORT = (
    argument("--to", required=True, metavar="FILE", help="FILE.csv, or FILE.parquet (pyarrow)"),
    argument("--what", choices=("metrics", "trials", "timings", "system"), default="metrics",
             help="every value of every metric (default), a row for each trial, "
                  "where its time went, or what machines and processes did"),
)  # fmt: skip
_TRACKERS = (
    argument("id", type=number_or_folder, metavar="ID|FOLDER",
             help="number of the experiment; or the files of a run that was started by hand "
                  "without a master, to take them in"),
    argument("--to", metavar="TRACKER",
             help="http://HOST:PORT of an MLflow, the name of a tracker, or "
                  "'{type: wandb, ...}'; by default those of its configuration"),
    flag("--stop", help="stop sending it there"),
)  # fmt: skip
_IMPORTED = (
    one_of(
        argument("source", nargs="?", metavar="SOURCE",
                 help="a folder with event files, or mlruns, mlflow.db or a tracking URI"),
        argument("--from-determined", metavar="URL|DUMP",
                 help="all experiments and models of a master of Determined, or of a pg_dump"),
        required=True,
    ),
    argument("--metric", metavar="NAME", help="metric to compare by (default: a validation loss)"),
    flag("--larger-is-better", help="larger values of it are better"),
)  # fmt: skip
_FILE = argument("file", metavar="FILE", help="the file")
_ARCHIVE = (
    _FILE,
    argument("--checkpoints", choices=("best", "all", "none"), default="best",
             help="the best one (default), all, or none"),
)  # fmt: skip
_FOLDER = argument("--to", metavar="FOLDER", help="write files there, instead of printing")
_LOG_FILTERS = (
    argument("--trial", type=whole, metavar="N", dest="trial_id", help="only this trial"),
    *LOGS,
)
_LIMITS_OF_A_SEARCH = (
    argument("--max-trials", type=whole, metavar="N", help="number of trials in all"),
    argument(
        "--max-length", type=yaml_value, metavar="LENGTH", help='train longer: "{epochs: 12}"'
    ),
    argument(
        "--max-concurrent",
        dest="max_concurrent_trials",
        type=whole,
        metavar="N",
        help="number of trials that train at once",
    ),
    argument(
        "--hyperparameters", type=yaml_value, metavar="YAML", help="ranges for future trials"
    ),
)
_DIAGNOSIS = (
    argument("--seconds", type=positive, metavar="S", help="how long each run measures"),
    argument("--rounds", type=whole, metavar="N", help="how often each recipe runs"),
    argument("--recipes", nargs="+", metavar="RECIPE", help="only these, such as: replay workers"),
    flag("--keep", help="do not delete its runs"),
)
_RETENTION = tuple(
    argument(f"--save-{name}", type=whole, metavar="N", required=True, help=f"number of {kept}")
    for name, kept in (
        ("experiment-best", "the best of all"),
        ("trial-best", "the best of each trial"),
        ("trial-latest", "the latest of each trial"),
    )
)
_CONFIG_FILE = argument("--config-file", metavar="FILE", help="YAML with changes, under --config")
_BEST = argument("--best", type=at_least_one, metavar="N", help="only the best of those validated")
_POLLING = argument("--polling-interval", type=positive, help=SUPPRESS)
_OF_BEST = (
    argument("--top-n", type=at_least_one, default=1, metavar="N", help="how many (1)"),
    *BY_METRIC,
)
_SOURCE = one_of(
    argument("--trial", type=whole, metavar="N", help="start from its latest checkpoint"),
    argument("--checkpoint", metavar="UUID", help="start from this checkpoint"),
)

_LABEL = VerbGroup(
    name="label",
    help="words to find it by",
    members=(
        Verb("add", "give it labels", verbs.changing.change_labels, (ID, _LABELS)),
        Verb("remove", "remove labels from it", verbs.changing.change_labels, (ID, _LABELS),
             aliases=("rm",)),
    ),
)  # fmt: skip

NO_RETENTION = {
    "log-retention": "logs are kept with their experiment; `{det} e delete` deletes both"
}
_SET = VerbGroup(
    name="set",
    help="change its name, description, priority, weight, limit or pool",
    default="",
    absent=NO_RETENTION,
    members=(
        Verb("", "change its name, description, priority, weight, limit or pool",
             verbs.changing.set_values,
             (ID, TITLE, _DESCRIPTION, PRIORITY, WEIGHT, _MAX_SLOTS, POOL)),
        Verb("name", "another name", verbs.changing.set_value, (ID, _to(str, "NAME"))),
        Verb("description", "its purpose or results, as text", verbs.changing.set_value,
             (ID, _to(str, "TEXT"))),
        Verb("priority", "1 to 99, the lowest first", verbs.changing.set_value,
             (ID, _to(whole, "N"))),
        Verb("weight", "its share, under fair share", verbs.changing.set_value,
             (ID, _to(positive, "W"))),
        Verb("max-slots", "most slots of all its trials, or none", verbs.changing.set_value,
             (ID, _to(limit, "N"))),
        Verb("resource-pool", "the pool that it waits in", verbs.changing.set_value,
             (ID, _to(str, "POOL")), aliases=("pool",)),
        Verb("gc-policy", "keep its best checkpoints, delete others",
             verbs.changing.set_retention, (ID, *_RETENTION, YES)),
    ),
)  # fmt: skip

MEMBERS: tuple[Verb | VerbGroup, ...] = (
    Verb("list", "list experiments, newest first", verbs.experiment_list.list_experiments,
         _FILTERS, aliases=("ls",)),
    Verb("show", "show the live view of an experiment", verbs.showing.show, (ID,)),
    Verb("describe", "print tables of it, its trials and what they did", verbs.describing.describe,
         (IDS, *DESCRIPTIONS)),
    Verb("logs", "print the output of its ranks", verbs.log_printing.show_logs,
         (ID, *_LOG_FILTERS)),
    Verb("trials", "print its trials, best first", verbs.showing.list_trials,
         (ID, *TABLE)),
    Verb("list-trials", "print its trials, oldest first, as a table for programs",
         verbs.describing.list_trials, (ID, *TABLE), aliases=("lt",)),
    Verb("list-checkpoints", "print its checkpoints", verbs.checkpoints.list_of_experiment,
         (ID, _BEST, *TABLE), aliases=("lc",)),
    Verb("wait", "wait until it has ended", verbs.showing.wait, (ID, _POLLING)),
    Verb("compare", "show how experiments, or trials of one, differ",
         verbs.showing.compare, _COMPARED),
    Verb("config", "print its configuration, with the origin of each value",
         verbs.showing.show_config, (ID,)),
    Verb("export", "write its metrics or trials to a file",
         verbs.exporting.export, (ID, *_EXPORT)),
    Verb("sync", "send it to trackers, such as MLflow; or take in what was written offline",
         verbs.tracking.sync, _TRACKERS, starts_master=True),
    Verb("import", "make experiments of runs of TensorBoard, MLflow or Determined",
         verbs.importing.import_, _IMPORTED, starts_master=True),
    Verb("export-archive", "write it to one file that others import",
         verbs.sharing.export_archive, (ID, *_ARCHIVE)),
    Verb("import-archive", "make an experiment of such a file",
         verbs.sharing.import_archive, (_FILE,), starts_master=True),
    Verb("export-html", "write its view to one HTML file, to be read anywhere",
         verbs.sharing.export_html, (ID, _FILE)),
    Verb("code", "print its captured code",
         verbs.exporting.show_code, (ID, _FOLDER)),
    Verb("download", "copy its best checkpoints", verbs.checkpoints.download_best,
         (ID, *COPIED, *_OF_BEST)),
    Verb("download-model-def", "copy its captured code and context directory",
         verbs.exporting.download_code, (ID, OUTPUT)),
    Verb("why", "print why it does not run, and what would start it",
         verbs.showing.why, (ID,)),
    Verb("verdict", "print what limits its training, and what would make it faster",
         verbs.showing.verdict, (ID,)),
    Verb("diagnose", "find out what limits it, by running it briefly in several ways",
         verbs.showing.diagnose, (ID, *_DIAGNOSIS)),
    Verb("change", "change the limits of its search while it runs",
         verbs.changing.change_search, (ID, *_LIMITS_OF_A_SEARCH)),
    _SET,
    _LABEL,
    Verb("pause", "let all ranks save their state and release their slots",
         verbs.lifecycle.command, (IDS, AT_ONCE)),
    Verb("activate", "continue it from where it was paused", verbs.lifecycle.command, (IDS,),
         aliases=("unpause",), starts_master=True),
    Verb("cancel", "end it after saving its state", verbs.lifecycle.command, (IDS,)),
    Verb("kill", "end it now", verbs.lifecycle.command, (IDS,)),
    Verb("archive", "hide it from lists", verbs.lifecycle.archive, (IDS,)),
    Verb("unarchive", "show it in lists again", verbs.lifecycle.archive, (IDS,)),
    Verb("delete", "delete it with its checkpoints, for ever", verbs.lifecycle.delete, (IDS, YES)),
    Verb("retention", "keep its best checkpoints, delete others",
         verbs.changing.set_retention, (ID, *_RETENTION, YES)),
    Verb("continue", "continue it after its end",
         verbs.changing.continue_experiment, (ID, CONFIG, _CONFIG_FILE), takes_text=True,
         starts_master=True),
    Verb("fork", "submit it again, with changes, as a new experiment",
         verbs.changing.fork, (ID, CONFIG, _CONFIG_FILE, _SOURCE, QUEUE_ANYWAY), takes_text=True,
         starts_master=True),
    Verb("?", "explain a key of the configuration", verbs.showing.explain_key, (_KEY,),
         aliases=("explain",)),
)  # fmt: skip

# Verbs of Determined's command that are missing here, and what to do instead.
PLACES = "there are no workspaces and no projects here: labels and names find experiments"
OF_EXPERIMENTS = {
    "delete-tb-files": (
        "metrics are kept with their experiment, not as files; a folder that `{cli} tensorboard` "
        "has written can be removed"
    ),
    "move": (
        f"{PLACES}; `{{det}} job move ID --ahead-of ID` moves an experiment in the queue, "
        "`{det} experiment set pool ID POOL` to another pool"
    ),
}
