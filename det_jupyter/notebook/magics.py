"""`%det_experiment` and `%det`, as line and as cell magics: thin words over what they call."""

from __future__ import annotations

import argparse
import keyword
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from det_jupyter.verbs.arguments import (
    HelpShown,
    cell_parser,
    line_parser,
    parse,
)
from det_jupyter.verbs.det_arguments import det_parser

_VERBS_WITH_A_CELL = (["fork"], ["continue"])  # its YAML changes the experiment's configuration


@magics_class
class DetMagics(Magics):
    """The magics of det_jupyter."""

    @line_cell_magic
    def det_experiment(self, line: str, cell: str | None = None) -> Any:
        """Submit an experiment (cell magic), or see and steer experiments (line magic).

        `%det_experiment --help` and, as a cell magic, `%%det_experiment --help` list the options.
        """
        __tracebackhide__ = True  # `--local` runs the user's code
        try:
            if cell is None or line.split()[:1] in _VERBS_WITH_A_CELL:
                return self._run_line(line, cell)
            return self._submit(line, cell)
        except HelpShown:
            return None

    @line_cell_magic
    def det(self, line: str, cell: str | None = None) -> Any:
        """See slots and queues (`%det slots`), keep templates (`%%det template set NAME`).

        `%det --help` lists all that it can do.
        """
        try:
            options = parse(det_parser(), line if line.strip() else "--help")
        except HelpShown:
            return None
        from det_jupyter.notebook.verbs import cluster_verbs, template_verbs
        from det_jupyter.notebook.verbs.missing import telling_what_there_is

        verbs = template_verbs if options.noun == "template" else cluster_verbs
        with telling_what_there_is():
            return verbs.run(options, cell)

    def _submit(self, line: str, cell: str) -> Any:
        __tracebackhide__ = True
        options = parse(cell_parser(), line)
        if not options.var.isidentifier() or keyword.iskeyword(options.var):
            raise UsageError(f"%%det_experiment: --var: got {options.var!r}, expected a name")
        if options.local:
            from det_jupyter.notebook.submit.local import run_local

            return run_local(cell, options, self.shell)
        if options.preview:
            from det_jupyter.notebook.submit.preview import preview_cell

            return preview_cell(cell, options)
        return self._submit_or_check(cell, options)

    def _submit_or_check(self, cell: str, options: argparse.Namespace) -> Any:
        from det_jupyter.notebook.submit.submitting import dry_run, submit

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

    def _run_line(self, line: str, cell: str | None) -> Any:
        options = parse(line_parser(), line)
        from det_jupyter.notebook.verbs import experiment_verbs
        from det_jupyter.notebook.verbs.missing import telling_what_there_is

        with telling_what_there_is():
            return experiment_verbs.run(options, cell)
