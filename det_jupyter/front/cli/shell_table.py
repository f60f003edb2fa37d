"""The verbs of `det`: those that notebooks have too, and those that only a shell has."""

from __future__ import annotations

from argparse import SUPPRESS
from dataclasses import replace
from functools import cache

from det_jupyter.front.verbs.arguments import (
    CONFIG,
    FOLLOW_LINKS,
    IDS,
    QUEUE_ANYWAY,
    STORAGE,
    TABLE,
    TEMPLATE,
    TITLE,
    TRIAL,
    port_number,
    positive,
    refused,
    trial_number,
    whole,
)
from det_jupyter.front.verbs.grammar import (
    Lazy,
    LineParser,
    Verb,
    VerbGroup,
    argument,
    flag,
    make_parser,
    one_of,
)
from det_jupyter.front.verbs.table_experiments import MEMBERS, OF_EXPERIMENTS, PLACES
from det_jupyter.front.verbs.table_others import DISK, OF_DET, OTHERS

cli = Lazy("det_jupyter.front.cli")

_FOLLOW = flag(
    "-f", "--follow", "--follow-first-trial", help="follow logs and metrics until it has ended"
)
_CREATE = Verb(
    "create", "submit an experiment: a configuration, and the folder with its code",
    cli.create.create,
    (
        argument("config_file", metavar="CONFIG", help="file with the configuration, YAML"),
        argument("model_def", metavar="DIR", nargs="?", help="folder with the code"),
        argument("-i", "--include", action="append", default=[], metavar="PATH",
                 help="another file or folder to send"),
        FOLLOW_LINKS,
        CONFIG,
        TEMPLATE,
        TITLE,
        STORAGE,
        one_of(
            _FOLLOW,
            flag("--paused", help="submit it paused, until it is activated"),
            flag("-t", "--test-mode", help="train and validate one batch, then archive it"),
            flag("--estimate", help="measure memory and time of a batch; submit nothing"),
        ),
        flag("--local", help="with --test-mode: in this process, without a master"),
        argument("--project_id", type=refused(PLACES), help=SUPPRESS),
        flag("-p", "--publish", help="has no effect: there are no ports to publish"),
        QUEUE_ANYWAY,
    ),
    starts_master=True,
)  # fmt: skip


_MAYBE_IDS = replace(IDS, rules=IDS.rules | {"nargs": "*", "default": []})
_BUNDLE = argument(
    "-o", "--output", "--output-dir", metavar="FILE",
    help="the file to write (default: one named after the time)",
)  # fmt: skip


def _with_bundle(member: Verb | VerbGroup) -> Verb | VerbGroup:
    """Add `support-bundle` to the group `trial`, where Determined has it."""
    if not isinstance(member, VerbGroup) or member.name != "trial":
        return member
    bundle = Verb("support-bundle", "collect what a bug report needs, without secrets",
                  cli.support_bundle.bundle, (TRIAL, _BUNDLE))  # fmt: skip
    return replace(member, members=(*member.members, bundle))


def _with_run(member: Verb | VerbGroup) -> Verb | VerbGroup:
    """Add `run` to the group `agent`: it is for the other computer's shell."""
    if not isinstance(member, VerbGroup) or member.name != "agent":
        return member
    run = Verb("run", "offer this computer's slots to a master on another one, until Ctrl-C",
               cli.agent_verbs.run,
               (argument("--credentials", metavar="FILE", default="-",
                         help="what `det agent add` printed there (default: stdin)"),
                argument("--node", type=whole, metavar="N",
                         help="which of several agents this is, from 0 (default: "
                              "$SLURM_NODEID or $JOB_COMPLETION_INDEX)"),
                argument("--home", metavar="FOLDER",
                         help="where its files go, on a disk of this computer (default: in the "
                              "folder of temporary files)"),
                argument("--address", metavar="HOST",
                         help="where agents of other computers reach this one (default: the "
                              "address that the master sees)"),
                argument("--port", type=port_number, metavar="N",
                         help="the port for them (default: any free one)"),
                argument("--grace", type=positive, metavar="S",
                         help="how long trials may save and upload after SIGTERM, before this "
                              "ends (default: 30)")))  # fmt: skip
    return replace(member, members=(*member.members, run))


def _followable(member: Verb | VerbGroup) -> Verb | VerbGroup:
    """Add `--follow` to the verbs that create experiments."""
    if isinstance(member, Verb) and member.name in ("continue", "fork"):
        return replace(member, arguments=(*member.arguments, _FOLLOW))
    return member


_EXPERIMENT = VerbGroup(
    name="experiment",
    help="see, submit and steer experiments",
    aliases=("e",),
    default="list",
    absent=OF_EXPERIMENTS,
    members=(_CREATE, *map(_followable, MEMBERS)),
)
_MASTER = VerbGroup(
    name="master",
    help="the background process that runs experiments",
    absent={"cluster-message": "there is one user: you"},
    members=(
        Verb("start", "start it, if it does not run", cli.master_verbs.control),
        Verb("restart", "replace it by one of this environment; running trials go on",
             cli.master_verbs.control),
        Verb("stop", "end it; running trials go on", cli.master_verbs.control,
             (flag("--everything", help="also kill agents and all that they run"),)),
        Verb("status", "print whether it runs (exit status 0 or 3)",
             cli.master_verbs.control, (flag("--json", help="for programs"),)),
        Verb("logs", "print its log", cli.master_verbs.logs,
             (flag("-f", "--follow", help="wait for more"),
              argument("--tail", type=whole, metavar="N", help="last lines (default: all)"))),
        DISK,
        VerbGroup(
            name="config",
            help="print where its data, logs and pools are",
            default="show",
            absent={"set": "its log has one level; `{cli} master logs` prints it"},
            members=(Verb("show", "print where its data, logs and pools are",
                          cli.master_verbs.config),),
        ),
        Verb("info", "print its version, address and process", cli.master_verbs.info,
             (one_of(flag("--json", help="JSON"), flag("--yaml", help="YAML (default)"),
                     argument("-o", "--output", choices=("json", "yaml"), help="the same")),)),
    ),
)  # fmt: skip
_NO_TASK = "a TensorBoard is a process here, not a task"
_TENSORBOARD = VerbGroup(
    name="tensorboard",
    help="show metrics of experiments in TensorBoard",
    default="list",
    members=(
        Verb("list", "list the TensorBoards that run", cli.tensorboard_verbs.list_all, TABLE,
             aliases=("ls",)),
        Verb("start", "start it in the background, for experiments or trials",
             cli.tensorboard_verbs.start,
             (_MAYBE_IDS,
              argument("-t", "--trial-ids", nargs="+", type=trial_number, metavar="N",
                       help="these trials instead"),
              argument("--logdir", metavar="FOLDER",
                       help="where its files go (default: a folder that is removed with it; "
                            "tensorboard in the foreground)"),
              argument("--port", type=whole, metavar="N", help="of the page"),
              flag("--no-browser", help="open no browser"),
              argument("--parent", type=whole, help=SUPPRESS),
              argument("--config", "--config-file", "-c", "--context",
                       type=refused(_NO_TASK), help=SUPPRESS),
              one_of(flag("-d", "--detach", help="print its number alone; open no browser"),
                     flag("--foreground", help="serve until Ctrl-C"),
                     flag("--no-serve", help="only write the files, as they are now")))),
        Verb("open", "show it in a browser", cli.tensorboard_verbs.open_one,
             (argument("number", type=whole, metavar="ID", help="its number"),)),
        Verb("kill", "end it", cli.tensorboard_verbs.kill,
             (argument("numbers", nargs="+", type=whole, metavar="ID", help="their numbers"),
              flag("-f", "--force", help="ignore those that have ended"))),
    ),
    absent=dict.fromkeys(("config", "logs", "set"), _NO_TASK),
)  # fmt: skip
_COMPLETION = VerbGroup(
    name="completion",
    help="completion by Tab: print the script for a shell",
    members=(
        *(
            Verb(shell, f'for {shell}: {line}', cli.shell_completion.script)
            for shell, line in (
                ("bash", 'eval "$(det completion bash)" in ~/.bashrc'),
                ("zsh", 'eval "$(det completion zsh)" in ~/.zshrc, after compinit'),
                ("fish", "det completion fish | source in config.fish"),
            )
        ),
        Verb("words", "what may follow the words of a line", cli.shell_completion.words,
             (argument("line", nargs="*", metavar="WORD",
                       help="its words, the last unfinished"),)),
    ),
)  # fmt: skip

_MCP = Verb(
    "mcp", "serve an assistant over stdin and stdout, by MCP",
    Lazy("det_jupyter.front.assistants").mcp_server.serve,
    (argument("--allow", default="", metavar="TOOL,TOOL",
              help="changes that it may make without the user's yes, such as pause,activate"),
     flag("--read-only", help="offer no changes"),
     flag("--skill", help="print SKILL.md, and end")),
)  # fmt: skip

SHELL = VerbGroup(
    name="det",
    help="Submit, see and steer experiments on your own computers.",
    metavar="WHAT",
    absent=OF_DET,
    members=(
        _EXPERIMENT,
        *(_with_run(_with_bundle(member)) for member in OTHERS),
        _MASTER,
        _TENSORBOARD,
        Verb(
            "support-bundle",
            "collect what a bug report needs, without secrets",
            cli.support_bundle.bundle,
            (_MAYBE_IDS, _BUNDLE),
        ),
        Verb("version", "print the version", cli.master_verbs.version),
        _MCP,
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


@cache
def shell_parser() -> LineParser:
    """Return the parser of `det`."""
    return make_parser(SHELL)
