"""How each kind of reader types a line: the same verb is a magic in a notebook, `det` in a shell.

What is typed is data until it is shown: a verb, a remedy (`remedies.py`), a key of an experiment.
The program that shows it passes its `Reader`; pages in JupyterLab speak to the notebook's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What the lines of one kind of reader begin with."""

    det: str  # a verb
    experiment: str  # a verb about experiments
    above_yaml: str  # stands before such a line if YAML stands below it
    shell: str  # stands before any other command

    def fill(self, text: str) -> str:
        """Return a text of a table, with `{det}` and `{cli}`, as this reader types them.

        >>> SHELL.fill("`{det} slots` shows it"), NOTEBOOK.fill("`{cli} master status` asks")
        ('`det slots` shows it', '`!det master status` asks')
        """
        return text.format(det=self.det, cli=f"{self.shell}{SHELL.det}")


NOTEBOOK = Reader(det="%det", experiment="%det_experiment", above_yaml="%", shell="!")
SHELL = Reader(det="det", experiment="det experiment", above_yaml="", shell="")
