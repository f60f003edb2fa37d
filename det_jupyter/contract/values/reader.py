"""The two syntaxes of command lines: the same verb is a magic in a notebook, `det` in a shell.

Messages that name a command keep it as data (a verb, a Remedy); the program that shows a message
writes the command in the syntax of its reader. Pages of JupyterLab use that of notebooks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The prefixes of command lines, as the reader of a message has to type them."""

    det: str  # prefix of a verb
    experiment: str  # prefix of a verb about experiments
    above_yaml: str  # further prefix of such a line if YAML follows below it
    shell: str  # prefix of any other command

    def fill(self, text: str) -> str:
        """Return `text` with prefixes in place of `{det}` and `{cli}`, which is always `det`.

        >>> SHELL.fill("`{det} slots` shows it"), NOTEBOOK.fill("`{cli} master status` asks")
        ('`det slots` shows it', '`!det master status` asks')
        """
        return text.format(det=self.det, cli=f"{self.shell}{SHELL.det}")


NOTEBOOK = Reader(det="%det", experiment="%det_experiment", above_yaml="%", shell="!")
SHELL = Reader(det="det", experiment="det experiment", above_yaml="", shell="")
# An assistant, whose tools are verbs: it reads a shell's lines, and nothing is printed for it.
ASSISTANT = Reader(det="det", experiment="det experiment", above_yaml="", shell="")
