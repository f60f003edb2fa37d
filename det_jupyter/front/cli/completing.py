"""Completion by Tab: scripts for three shells, all of which ask `det completion words`.

A library for it (argcomplete, shtab) would not know experiments and templates, which the master is
asked for; and the parser has all the words already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from det_jupyter.client.client import Client
from det_jupyter.contract.messages import ExperimentQuery
from det_jupyter.errors import DetError
from det_jupyter.front.cli.calls import connect_to_running
from det_jupyter.front.cli.table import shell_parser
from det_jupyter.front.verbs.completing import words_after
from det_jupyter.front.verbs.grammar import Call

_MOST = 200  # experiments that are offered, newest first

# Without a word of ours, each falls back on the names of files.
_SCRIPTS = {
    "bash": """\
_det() {
    local IFS=$'\\n'
    COMPREPLY=($(det completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _det det""",
    "zsh": """\
_det() {
    local -a found
    found=(${(f)"$(det completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _det det""",
    "fish": """\
function __det_words
    set -l given (commandline -opc) (commandline -ct)
    det completion words -- $given[2..] 2>/dev/null
end
complete -c det -a '(__det_words)'""",
}


def script(call: Call) -> str:
    """Return the script for a shell."""
    return _SCRIPTS[call.options.verb.name]


def words(call: Call) -> str:
    """Return what fits at the end of a line, each on a line of its own.

    Options are offered after a dash: where there is nothing else, a shell offers files.
    """
    *given, typed = call.options.line or [""]
    found = words_after(shell_parser(), given, _known())
    fitting = [word for word in found if word.startswith(typed)]
    return "\n".join(word for word in fitting if word[0] != "-" or typed[:1] == "-")


def _known() -> dict[str, Callable[[], list[str]]]:
    return {kind: partial(_asked, ask) for kind, ask in _ASKS.items()}


def _asked(ask: Callable[[Client], list[str]]) -> list[str]:
    """Return the answer of the master that runs; nothing if there is none: Tab starts none."""
    try:
        return ask(Client(connect_to_running()))
    except DetError:
        return []


_NEWEST = ExperimentQuery(archived=True, limit=_MOST)
_ASKS: dict[str, Callable[[Client], list[str]]] = {
    "experiments": lambda client: [str(row.id) for row in client.find(_NEWEST).rows],
    "templates": lambda client: [template.name for template in client.templates()],
    "agents": lambda client: [agent.id for pool in client.pools() for agent in pool.agents],
    "pools": lambda client: [pool.name for pool in client.pools()],
    "trials": lambda client: [str(task.trial_id) for task in client.tasks(limit=_MOST)],
}
