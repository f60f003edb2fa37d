"""The verbs about trials and their checkpoints."""

from __future__ import annotations

from det_jupyter.verbs.arguments import (
    DESCRIPTIONS,
    FILE,
    ID,
    LOGS,
    OUTPUT,
    PRIORITY,
    TABLE,
    TEMPLATE,
    TRIAL,
    YES,
)
from det_jupyter.verbs.grammar import FunctionsOf, Group, Verb, argument, flag, one_of
from det_jupyter.verbs.kinds import (
    at_least_one,
    experiment_number,
    positive,
    ranks,
    trial_number,
    uuid,
    uuids,
    whole,
    yaml_value,
)

checkpoints = FunctionsOf("det_jupyter.verbs.checkpoints")
describing = FunctionsOf("det_jupyter.verbs.describing")
experiments = FunctionsOf("det_jupyter.verbs.experiments")
logs = FunctionsOf("det_jupyter.verbs.logs")
previewing = FunctionsOf("det_jupyter.verbs.previewing")
trials = FunctionsOf("det_jupyter.verbs.trials")

_TRIAL_OR_EXPERIMENT = one_of(
    argument("trial", nargs="?", type=trial_number, help="number of the trial"),
    argument("--experiment", type=experiment_number, metavar="ID", help="its next trial"),
    required=True,
)
_PROFILE = (
    argument("--steps", type=at_least_one, default=10, metavar="N", help="batches to record (10)"),
    argument("--ranks", type=ranks, default=[0], metavar="R,R", help="on which ranks (0)"),
    flag("--with-stack", help="with the lines of Python that called"),
)
_LIVE_CHANGES = (
    argument("--lr", type=positive, metavar="LR", help="the learning rate from now on"),
    argument("--lr-factor", type=positive, metavar="F",
             help="multiplies all learning rates instead"),
    argument("--optimizer", type=whole, metavar="N", help="only of this one, from 0"),
    argument("--min-validation-period", type=yaml_value, metavar="LENGTH",
             help='such as "{batches: 50}"'),
)  # fmt: skip
_SECONDS_PER_BATCH = argument(
    "--seconds-per-batch", type=positive, metavar="X", help="for the times of the preview"
)
_OF_TRIAL = one_of(
    flag("--best", help="by the searcher's metric (default)"),
    flag("--latest", help="the newest"),
    argument("--uuid", metavar="UUID", help="this one"),
)
_UUID = argument("uuid", type=uuid, help="name of the checkpoint")
_UUIDS = argument(
    "uuids", type=uuids, nargs="+", metavar="UUID", help="names of checkpoints, or A,B"
)

TRIAL_GROUP = Group(
    name="trial",
    help="see, change or profile a trial",
    aliases=("t",),
    members=(
        Verb("describe", "print tables of it and of what it did",
             describing.describe_trial,
             (TRIAL, *DESCRIPTIONS, flag("--metrics-summary", help="the last value of each")),
             is_verbatim=True),
        Verb("logs", "print what its ranks printed", logs.show_trial_logs, (TRIAL, *LOGS),
             is_verbatim=True),
        Verb("download", "copy a checkpoint of it", checkpoints.download_of_trial,
             (TRIAL, OUTPUT, _OF_TRIAL)),
        Verb("kill", "end it now; its experiment goes on", trials.kill, (TRIAL,)),
        Verb("profile", "record some of its batches with torch.profiler",
             trials.profile, (TRIAL, *_PROFILE)),
        Verb("set", "change its learning rate, validation period or priority",
             trials.change, (TRIAL, *_LIVE_CHANGES, PRIORITY)),
    ),
)  # fmt: skip
CHECKPOINT_GROUP = Group(
    name="checkpoint",
    help="saved states of trials",
    aliases=("c",),
    members=(
        Verb("list", "print the checkpoints of an experiment",
             checkpoints.list_of_experiment, (ID, *TABLE), aliases=("ls",)),
        Verb("describe", "print where it is from and what is in it",
             checkpoints.describe, (_UUID, flag("--json", help="JSON")), is_verbatim=True),
        Verb("download", "copy its files", checkpoints.download, (_UUID, OUTPUT)),
        Verb("delete", "delete them", checkpoints.delete, (_UUIDS, YES), aliases=("rm",)),
    ),
)  # fmt: skip
WHY = Verb(
    "why", "why a trial does not run, and what would start it",
    experiments.why_trial, (_TRIAL_OR_EXPERIMENT,),
)  # fmt: skip
PREVIEW = Verb(
    "preview-search", "what the search of a configuration would train; submits nothing",
    previewing.preview, (FILE, TEMPLATE, _SECONDS_PER_BATCH), takes_text=True, starts_master=True,
)  # fmt: skip
