"""`%det_experiment` and `%det`, as line and as cell magics: thin words over what they call."""

from __future__ import annotations

import argparse
import keyword
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from det_jupyter.notebook.arguments import (
    HelpShown,
    cell_parser,
    det_parser,
    line_parser,
    parse,
)


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

    @line_cell_magic
    def det(self, line: str, cell: str | None = None) -> Any:
        """Keep templates: `%%det template set NAME` above YAML, `%det template list`.

        `%det --help` lists all that it can do.
        """
        try:
            options = parse(det_parser(), line if line.strip() else "--help")
        except HelpShown:
            return None
        from det_jupyter.notebook import template_verbs

        return template_verbs.run(options, cell)

    def _submit(self, line: str, cell: str) -> Any:
        options = parse(cell_parser(), line)
        if not options.var.isidentifier() or keyword.iskeyword(options.var):
            raise UsageError(f"%%det_experiment: --var: got {options.var!r}, expected a name")
        if options.preview:
            from det_jupyter.notebook.preview import preview_cell

            return preview_cell(cell, options)
        return self._submit_or_check(cell, options)

    def _submit_or_check(self, cell: str, options: argparse.Namespace) -> Any:
        from det_jupyter.notebook.submit import dry_run, submit

        shell = self.shell
        assert shell is not None, "magics are registered by a shell"
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
