"""The verbs about trials and their checkpoints."""

from __future__ import annotations

from det_jupyter.verbs.arguments import (
    DESCRIPTIONS,
    FILE,
    ID,
    LIVE_CHANGES,
    LOGS,
    OF_TRIAL,
    OUTPUT,
    PRIORITY,
    PROFILE,
    SECONDS_PER_BATCH,
    TABLE,
    TEMPLATE,
    TRIAL,
    TRIAL_OR_EXPERIMENT,
    UUID,
    UUIDS,
    YES,
)
from det_jupyter.verbs.grammar import FunctionsOf, Group, Verb, flag

checkpoints = FunctionsOf("det_jupyter.verbs.checkpoints")
describing = FunctionsOf("det_jupyter.verbs.describing")
experiments = FunctionsOf("det_jupyter.verbs.experiments")
logs = FunctionsOf("det_jupyter.verbs.logs")
previewing = FunctionsOf("det_jupyter.verbs.previewing")
trials = FunctionsOf("det_jupyter.verbs.trials")

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
             (TRIAL, OUTPUT, OF_TRIAL)),
        Verb("kill", "end it now; its experiment goes on", trials.kill, (TRIAL,)),
        Verb("profile", "record some of its batches with torch.profiler",
             trials.profile, (TRIAL, *PROFILE)),
        Verb("set", "change its learning rate, validation period or priority",
             trials.change, (TRIAL, *LIVE_CHANGES, PRIORITY)),
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
             checkpoints.describe, (UUID, flag("--json", help="JSON")), is_verbatim=True),
        Verb("download", "copy its files", checkpoints.download, (UUID, OUTPUT)),
        Verb("delete", "delete them", checkpoints.delete, (UUIDS, YES), aliases=("rm",)),
    ),
)  # fmt: skip
WHY = Verb(
    "why", "why a trial does not run, and what would start it",
    experiments.why_trial, (TRIAL_OR_EXPERIMENT,),
)  # fmt: skip
PREVIEW = Verb(
    "preview-search", "what the search of a configuration would train; submits nothing",
    previewing.preview, (FILE, TEMPLATE, SECONDS_PER_BATCH), takes_text=True, starts_master=True,
)  # fmt: skip
