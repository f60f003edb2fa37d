"""`%det_experiment` and `%%det_experiment`: thin words over `submit` and the handles."""

from __future__ import annotations

import keyword
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from det_jupyter.notebook.arguments import HelpShown, cell_parser, line_parser, parse


@magics_class
class DetMagics(Magics):
    """The magics of det_jupyter."""

    @line_cell_magic
    def det_experiment(self, line: str, cell: str | None = None) -> Any:
        """Submit an experiment (cell magic), or see and steer experiments (line magic).

        `%det_experiment --help` and, as a cell magic, `%%det_experiment --help` list the options.
        """
        try:
            return self._run_line(line) if cell is None else self._submit(line, cell)
        except HelpShown:
            return None

    def _submit(self, line: str, cell: str) -> Any:
        from det_jupyter.notebook.submit import dry_run, submit

        shell = self.shell
        assert shell is not None, "magics are registered by a shell"
        options = parse(cell_parser(), line)
        if not options.var.isidentifier() or keyword.iskeyword(options.var):
            raise UsageError(f"%%det_experiment: --var: got {options.var!r}, expected a name")
        if options.dry_run:
            return dry_run(cell, options, shell)
        experiment = submit(cell, options, shell)
        shell.user_ns[options.var] = experiment
        if options.wait:
            experiment.show()
            experiment.wait()
            return None
        return experiment

    def _run_line(self, line: str) -> Any:
        if not line.strip():
            line = "--help"
        options = parse(line_parser(), line)
        from det_jupyter.notebook import verbs

        return verbs.run(options)
