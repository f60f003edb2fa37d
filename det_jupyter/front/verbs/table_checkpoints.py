"""The verbs about checkpoints."""

from __future__ import annotations

from det_jupyter.front.verbs.arguments import (
    COPIED,
    TABLE,
    YES,
    checkpoint_pattern,
    checkpoint_patterns,
    folder,
)
from det_jupyter.front.verbs.grammar import Lazy, Verb, VerbGroup, argument, flag

verbs = Lazy("det_jupyter.front.verbs")
_PATTERN_HELP = (
    "names of checkpoints; patterns: 'UUID', 'EXPERIMENT/UUID', 'EXPERIMENT/TRIAL/UUID'"
)
_CHECKPOINTS = argument(
    "uuids", type=checkpoint_patterns, nargs="+", metavar="UUID", help=_PATTERN_HELP
)
_TO = argument(
    "--to", required=True, type=folder, metavar="URL|FOLDER", help="such as s3://models/team"
)
_GLOB = argument(
    "--glob",
    dest="globs",
    action="append",
    default=[],
    metavar="PATTERN",
    help="delete only the files that match, such as '*.pt' or '**/optimizer/*'; may be repeated",
)

CHECKPOINT_GROUP = VerbGroup(
    name="checkpoint",
    help="saved states of trials",
    aliases=("c",),
    members=(
        Verb("list", "print the checkpoints of an experiment, or that match a pattern",
             verbs.checkpoints.list_matching,
             (argument("which", type=checkpoint_pattern, metavar="ID",
                       help="number of an experiment, or a pattern such as '7/12/*' or '3f2*'"),
              *TABLE),
             aliases=("ls",)),
        Verb("describe", "print where they are from and what is in them",
             verbs.checkpoints.describe, (_CHECKPOINTS, flag("--json", help="JSON"))),
        Verb("download", "copy their files", verbs.checkpoints.download, (_CHECKPOINTS, *COPIED)),
        Verb("delete", "delete them", verbs.checkpoints.delete, (_CHECKPOINTS, YES, _GLOB),
             aliases=("rm",)),
        Verb("copy", "copy them to another folder or bucket", verbs.stored_elsewhere.copy,
             (_CHECKPOINTS, _TO), aliases=("cp",)),
        Verb("move", "move them to another folder or bucket, where they are used from now on",
             verbs.stored_elsewhere.move, (_CHECKPOINTS, _TO), aliases=("mv",)),
        Verb("adopt", "list the checkpoints that a folder or bucket has",
             verbs.stored_elsewhere.adopt_all,
             (argument("location", type=folder, metavar="URL|FOLDER",
                       help="such as s3://models/team"),), starts_master=True),
        Verb("gc", "delete what policies do not keep, and what crashes have left",
             verbs.stored_elsewhere.collect,
             (flag("--dry-run", help="only list it"), YES, *TABLE)),
    ),
)  # fmt: skip
