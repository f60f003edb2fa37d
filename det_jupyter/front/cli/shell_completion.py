"""Tab completion: scripts for three shells, all of which run `det completion words`.

Libraries (argcomplete, shtab) complete only what the parser contains. Ids of experiments and names
of templates come from the master.
"""

from __future__ import annotations

from functools import partial

from det_jupyter.client.client import Client
from det_jupyter.errors import DetError
from det_jupyter.front.cli.connecting import connect_to_running
from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.word_completion import QUESTIONS, Fetch, words_after

# Where `det` offers nothing, each shell completes file names.
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
    """Return the completion script for the shell that the verb is named after."""
    return _SCRIPTS[call.options.verb.name]


def words(call: Call) -> str:
    """Return the completions of the line's last word, one per line.

    Options are offered only after a dash, so that a shell completes file names elsewhere.
    """
    *given, typed = call.options.line or [""]
    sources = {kind: partial(_fetched, fetch) for kind, fetch in QUESTIONS.items()}
    found = words_after(shell_parser(), given, sources)
    fitting = [word for word in found if word.startswith(typed)]
    return "\n".join(word for word in fitting if word[0] != "-" or typed[:1] == "-")


def _fetched(fetch: Fetch) -> list[str]:
    """Return names from the running master; none if no master runs, as Tab does not start one."""
    try:
        return fetch(Client(connect_to_running()))
    except DetError:
        return []
