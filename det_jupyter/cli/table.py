"""The words of `det`: the groups of `%det`, those of `%det_experiment` under `experiment`, and the
verbs that only a shell has.
"""

from __future__ import annotations

from dataclasses import replace

from det_jupyter.verbs.arguments import CONFIG, IDS, QUEUE_ANYWAY, STORAGE, TEMPLATE, TITLE, whole
from det_jupyter.verbs.grammar import (
    Group,
    Later,
    LineParser,
    Verb,
    argument,
    flag,
    make_parser,
    one_of,
)
from det_jupyter.verbs.table import EXPERIMENT, OF_DET, OF_EXPERIMENTS
from det_jupyter.verbs.table_others import OTHERS

cli = Later("det_jupyter.cli")

_FOLLOW = flag(
    "-f", "--follow", "--follow-first-trial", help="follow logs and metrics until it has ended"
)
_CREATE = Verb(
    "create", "submit an experiment: a configuration, and the folder with its code",
    cli.creating.create,
    (
        argument("config_file", metavar="CONFIG", help="file with the configuration, YAML"),
        argument("model_def", metavar="DIR", nargs="?", help="folder with the code"),
        argument("-i", "--include", action="append", default=[], metavar="PATH",
                 help="a file or folder to take along too"),
        CONFIG,
        TEMPLATE,
        TITLE,
        STORAGE,
        one_of(
            _FOLLOW,
            flag("--paused", help="let it wait until it is activated"),
            flag("-t", "--test-mode", help="train and validate one batch, then archive it"),
        ),
        flag("--local", help="with --test-mode: right here, without a master"),
        flag("-p", "--publish", help="has no effect: there are no ports to publish"),
        QUEUE_ANYWAY,
    ),
    starts_master=True,
)  # fmt: skip


def _followable(member: Verb | Group) -> Verb | Group:
    """Return the verbs that make experiments run with an option to follow them."""
    if isinstance(member, Verb) and member.name in ("continue", "fork"):
        return replace(member, arguments=(*member.arguments, _FOLLOW))
    return member


_EXPERIMENT = Group(
    name="experiment",
    help="see, submit and steer experiments",
    aliases=("e",),
    default="list",
    absent=OF_EXPERIMENTS,
    members=(_CREATE, *map(_followable, EXPERIMENT.members)),
)
_MASTER = Group(
    name="master",
    help="the background process that runs experiments",
    members=(
        Verb("start", "start it, if it does not run", cli.master.control),
        Verb("stop", "end it; running trials go on", cli.master.control,
             (flag("--everything", help="kill what runs, too"),)),
        Verb("status", "say whether it runs (exit status 0 or 3) and what", cli.master.control,
             (flag("--json", help="for programs"),)),
        Verb("logs", "print its log", cli.master.logs,
             (flag("-f", "--follow", help="wait for more"),
              argument("--tail", type=whole, metavar="N", help="last lines (default: all)")),
             is_verbatim=True),
        Verb("config", "print where its data, logs and pools are", cli.master.config,
             (argument("show", nargs="?", choices=("show",), help="the same"),),
             is_verbatim=True),
        Verb("info", "print its version, address and process", cli.master.info, is_verbatim=True),
    ),
)  # fmt: skip
_TENSORBOARD = Group(
    name="tensorboard",
    help="the metrics of experiments in TensorBoard",
    members=(
        Verb("start", "write its files, keep them current and serve them until Ctrl-C",
             cli.following.serve_tensorboard,
             (IDS,
              argument("--logdir", metavar="FOLDER", help="where to (default: tensorboard)"),
              argument("--port", type=whole, metavar="N", help="of the page"),
              flag("--no-serve", help="only write the files, as they are now"))),
    ),
)  # fmt: skip
_COMPLETION = Group(
    name="completion",
    help="completion by Tab: print the script for a shell",
    members=(
        *(
            Verb(shell, f'for {shell}: {line}', cli.completing.script, is_verbatim=True)
            for shell, line in (
                ("bash", 'eval "$(det completion bash)" in ~/.bashrc'),
                ("zsh", 'eval "$(det completion zsh)" in ~/.zshrc, after compinit'),
                ("fish", "det completion fish | source in config.fish"),
            )
        ),
        Verb("words", "what may follow the words of a line", cli.completing.words,
             (argument("line", nargs="*", metavar="WORD", help="its words, the last unfinished"),),
             is_verbatim=True),
    ),
)  # fmt: skip

SHELL = Group(
    name="det",
    help="Submit, see and steer experiments on the computers of your own.",
    metavar="WHAT",
    absent=OF_DET,
    members=(
        _EXPERIMENT,
        *OTHERS,
        _MASTER,
        _TENSORBOARD,
        Verb("version", "print the version", cli.master.version, is_verbatim=True),
        _COMPLETION,
    ),
    examples="""examples:
  det e create config.yaml . -f       submit it with the folder, and follow it
  det e create config.yaml . --config searcher.max_length.epochs=12
  det e                               everything that runs or ran
  det e describe 7                    its trials and what they did
  det e logs 7 -f --rank 1            what rank 1 prints
  det e wait 7 && det e download 7    its best checkpoint when it has completed
  det e pause 7                       all ranks save their state and leave
  det t logs 9 --json                 what trial 9 printed, for programs
  det slots                           who is on which slot
  det why 9                           why trial 9 does not run
  det master status                   whether the master runs, and what

Exit status: 0 well, 1 refused or failed, 2 wrong usage, 130 interrupted.""",
)


def shell_parser() -> LineParser:
    """Return the parser of `det`."""
    return make_parser(SHELL)
